"""The clients' ensemble against a hand case, single members, and a search over beta."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bflp.engine.evaluators.ensemble import combined, evaluate, fitted, pooled
from bflp.engine.metrics import nll
from bflp.engine.predictions import Predictions

MEMBERS = [[[0.7, 0.2, 0.1]], [[0.1, 0.8, 0.1]], [[0.5, 0.25, 0.25]]]


@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        (0.0, [0.433333, 0.416667, 0.15]),
        (0.5, [0.453406, 0.475299, 0.071295]),
        # By hand: 0.7 * 0.1 * 0.5 = 0.035, 0.04 and 0.0025, of 0.0775.
        (1.0, [0.035 / 0.0775, 0.04 / 0.0775, 0.0025 / 0.0775]),
    ],
)
def test_three_members(beta: float, expected: list[float]) -> None:
    np.testing.assert_allclose(combined(*pooled(map(np.array, MEMBERS)), beta), [expected], atol=1e-6)
    backwards = combined(*pooled(map(np.array, MEMBERS[::-1])), beta)
    np.testing.assert_allclose(backwards, [expected], atol=1e-6)


def random_members(seed: int, clients: int = 4, samples: int = 200, labels: int = 5) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return list(generator.dirichlet(np.full(labels, 0.4), (clients, samples)).astype(np.float32))


def test_the_mixture_of_identical_posteriors_is_that_posterior() -> None:
    (member,) = random_members(0, clients=1)
    np.testing.assert_allclose(combined(*pooled([member] * 5), 0.0), member, atol=1e-6)


def test_one_member_is_its_own_ensemble() -> None:
    (member,) = random_members(0, clients=1)
    for beta in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(combined(*pooled([member]), beta), member, atol=1e-6)


def test_probabilities_that_are_rounded_to_zero_stay_numbers() -> None:
    # So many that the exponential of the sum of their logarithms is 0.
    members = [np.array([[1.0, 0.0]], dtype=np.float32), np.array([[0.0, 1.0]], dtype=np.float32)] * 20
    for beta in (0.0, 0.5, 1.0):
        np.testing.assert_allclose(combined(*pooled(members), beta), [[0.5, 0.5]])


@pytest.mark.parametrize("seed", range(8))
def test_beta_is_the_best_of_all(seed: int) -> None:
    """Labels of one member, of the mixture, of the product and of nobody; a fine grid is the oracle."""
    members = random_members(seed)
    sums, generator = pooled(members), np.random.default_rng(seed)
    truth = [members[0], combined(*sums, 0.0), combined(*sums, 1.0), combined(*sums, 0.2)][seed % 4]
    labels = np.array([generator.choice(5, p=row / row.sum()) for row in truth.astype(np.float64)])
    held_out = [Predictions(each, labels, 15, None, np.zeros(len(labels), dtype=np.float32)) for each in members]

    def loss(beta: float) -> float:
        of = Predictions(combined(*sums, beta), labels, 15, None, held_out[0].sample_entropies)
        return nll.metric(of)

    found = fitted(held_out, *sums)
    assert 0 <= found <= 1
    assert loss(found) <= min(map(loss, np.linspace(0, 1, 201))) + 1e-9


def test_sums_are_in_double_precision() -> None:
    members = random_members(0)
    product, mixture = pooled(members)
    exact = np.stack(members).astype(np.float64)
    np.testing.assert_allclose(product, np.log(exact).sum(0), rtol=1e-12)
    np.testing.assert_allclose(mixture, np.log(exact.sum(0) / 4), rtol=1e-12, atol=1e-14)


def subject(test_labels: list[int]) -> Any:
    """Two clients who say 0.8 : 0.2 and 0.5 : 0.5 of everything; all held-out samples are of label 0."""

    def predict(vector: str, held_out: bool = False) -> Predictions:
        labels = np.array([0, 0, 0] if held_out else test_labels)
        probabilities = np.array([{"first": [0.8, 0.2], "second": [0.5, 0.5]}[vector]] * len(labels), np.float32)
        return Predictions(probabilities, labels, 10, None, np.zeros(len(labels), dtype=np.float32))

    return SimpleNamespace(clients={3: "first", 7: "second"}, model="global", predict=predict)


def test_each_kind_is_measured_on_the_test_set() -> None:
    """By hand: the mixture says 0.65, the product 0.8; a quarter and three quarters of their log odds are between."""
    found = evaluate(subject([0, 0, 1]), {"beta": 0.25}).final
    odds = 4**0.25 * (0.65 / 0.35) ** 0.75
    assert found["ensemble_beta"] == 0.25
    for kind, right in {"mixture": 0.65, "product": 0.8, "beta": odds / (1 + odds)}.items():
        assert found[f"accuracy_{kind}"] == pytest.approx(200 / 3)
        assert found[f"ece_{kind}"] == pytest.approx(100 * abs(right - 2 / 3), abs=1e-4)
        assert found[f"nll_{kind}"] == pytest.approx(-(2 * np.log(right) + np.log(1 - right)) / 3, abs=1e-6)


def test_a_fitted_beta_is_that_of_the_held_out_samples() -> None:
    """Held out, the more confident product is right each time; on the test set it is wrong."""
    found = evaluate(subject([1, 1]), {"beta": "fitted"}).final
    assert found["ensemble_beta"] == 1.0
    assert found["nll_beta"] == found["nll_product"] == pytest.approx(-np.log(0.2), abs=1e-6)
