"""Temperature scaling against a temperature that is known, a search on logits, and what it must never do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bflp.engine.evaluators.temperature import BOUNDS, evaluate, fitted, scaled
from bflp.engine.metrics import accuracy, ece, nll
from bflp.engine.predictions import Predictions


def predictions(probabilities: object, labels: object) -> Predictions:
    probabilities = np.asarray(probabilities, dtype=np.float32)
    return Predictions(probabilities, np.asarray(labels), 15, None, np.zeros(len(probabilities), dtype=np.float32))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5, 4.0])
def test_a_known_temperature_is_found(temperature: float) -> None:
    """Of each kind of sample the labels are as frequent as q says, and the model predicts q^T: by hand, T is best."""
    kinds = {(0.5, 0.25, 0.25): (2, 1, 1), (0.1, 0.8, 0.1): (1, 8, 1), (0.2, 0.2, 0.6): (1, 1, 3)}
    rows, labels = [], []
    for q, counts in kinds.items():
        powers = np.array(q) ** temperature
        for label, count in enumerate(counts):
            rows += [powers / powers.sum()] * count
            labels += [label] * count
    found = predictions(rows, labels)
    assert fitted(found) == pytest.approx(temperature, rel=1e-3)
    calibrated = scaled(found, fitted(found))
    expected = -np.mean([np.log(q[label]) for q, n in kinds.items() for label in range(3) for _ in range(n[label])])
    assert nll.metric(calibrated) == pytest.approx(expected, abs=1e-5)


def test_it_is_what_a_search_on_the_logits_finds() -> None:
    """Of a single network's softmax, T divides the logits (torch's cross entropy is the oracle)."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(400, 5, generator=generator, dtype=torch.float64)
    labels = torch.distributions.Categorical(logits=logits / 3).sample()
    temperatures = torch.linspace(1, 8, 7001, dtype=torch.float64)
    losses = torch.stack([torch.nn.functional.cross_entropy(logits / t, labels) for t in temperatures])
    found = predictions(torch.softmax(logits, 1).numpy(), labels.numpy())
    assert fitted(found) == pytest.approx(float(temperatures[losses.argmin()]), abs=0.01)
    by_logits = torch.nn.functional.cross_entropy(logits / fitted(found), labels)
    assert nll.metric(scaled(found, fitted(found))) == pytest.approx(float(by_logits), abs=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_it_never_raises_the_nll_that_it_is_fitted_on_nor_changes_a_prediction(seed: int) -> None:
    """Confident, flat, always wrong, and with probabilities that float32 rounds to 0 and 1."""
    generator = np.random.default_rng(seed)
    count, labels = int(generator.integers(1, 60)), int(generator.integers(2, 12))
    logits = generator.normal(0, 10 ** generator.uniform(-2, 2.5), (count, labels))
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    found = predictions(exponentials / exponentials.sum(axis=1, keepdims=True), generator.integers(0, labels, count))
    calibrated = scaled(found, fitted(found))
    assert nll.metric(calibrated) <= nll.metric(found)
    np.testing.assert_array_equal(calibrated.probabilities.argmax(1), found.probabilities.argmax(1))
    assert accuracy.metric(calibrated) == accuracy.metric(found)
    np.testing.assert_allclose(calibrated.probabilities.sum(1), 1, atol=1e-6)
    assert np.isfinite(ece.metric(calibrated))


def test_a_model_that_is_always_right_stays_within_the_bounds() -> None:
    found = predictions([[0.9, 0.1], [0.2, 0.8]], [0, 1])
    assert BOUNDS[0] <= fitted(found) < 0.1
    wrong = predictions([[0.9, 0.1], [0.2, 0.8]], [1, 0])
    assert 15 < fitted(wrong) <= BOUNDS[1]
    assert scaled(found, 1.0) is found


def test_a_model_that_says_nothing_keeps_its_temperature() -> None:
    assert fitted(predictions([[0.5, 0.5]] * 3, [0, 1, 1])) == 1.0


def test_the_test_set_is_measured_with_the_temperature_of_the_held_out_samples() -> None:
    """By hand: two of three are right, which is 0.8 : 0.2 with its odds' root; and 16 : 1 becomes 4 : 1."""
    held_out, test = predictions([[0.8, 0.2]] * 3, [0, 0, 1]), predictions([[16 / 17, 1 / 17]] * 5, [0, 1, 0, 0, 0])
    by_data = {True: held_out, False: test}
    subject: Any = SimpleNamespace(model=None, predictions=test, predict=lambda _, held_out=False: by_data[held_out])
    found = evaluate(subject, True).final
    assert found["temperature"] == pytest.approx(2.0, rel=1e-4)
    assert found["ece_calibrated"] == pytest.approx(0.0, abs=1e-2)
    assert found["nll_calibrated"] == pytest.approx(-0.8 * np.log(0.8) - 0.2 * np.log(0.2), abs=1e-5)
