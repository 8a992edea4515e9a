"""Projection between a local and the global posterior, by hand and against the divergences that it minimises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from bflp.engine.evaluators.personal import evaluate, projected
from bflp.engine.predictions import Predictions

# Two plain weights, two means, two log variances.
LAYOUT: Any = SimpleNamespace(deterministic=slice(0, 2), means=slice(2, 4), log_variances=slice(4, 6))
LOCAL = np.array([1.0, -2.0, 0.5, -1.0, -2.0, 0.3], dtype=np.float32)
GLOBAL = np.array([3.0, 0.0, 0.1, 2.0, -1.0, -0.7], dtype=np.float32)


def posterior(enforce: str = "clamp", bounds: tuple[float, float] = (-8.0, 8.0)) -> Any:
    return SimpleNamespace(bounds=bounds, enforce=enforce)


@pytest.mark.parametrize("rule", ["W2", "RKL", "FKL"])
def test_lambda_0_and_infinity_are_the_global_and_the_local_model(rule: str) -> None:
    np.testing.assert_allclose(projected(LOCAL, GLOBAL, 0.0, rule, LAYOUT, posterior()), GLOBAL, atol=1e-6)
    np.testing.assert_allclose(projected(LOCAL, GLOBAL, 1.0, rule, LAYOUT, posterior()), LOCAL, atol=1e-6)
    # Between equals is the same, whatever lambda.
    np.testing.assert_allclose(projected(LOCAL, LOCAL, 0.4, rule, LAYOUT, posterior()), LOCAL, atol=1e-6)


def test_single_numbers_are_averaged() -> None:
    np.testing.assert_allclose(
        projected(LOCAL, GLOBAL, 0.25, "W2", LAYOUT, None), 0.25 * LOCAL + 0.75 * GLOBAL, atol=1e-6
    )
    with_posterior = projected(LOCAL, GLOBAL, 0.25, "RKL", LAYOUT, posterior())
    np.testing.assert_allclose(with_posterior[:2], [0.25 * 1 + 0.75 * 3, 0.25 * -2], atol=1e-6)


def divergence(rule: str, found: torch.distributions.Normal, member: torch.distributions.Normal) -> torch.Tensor:
    if rule == "RKL":
        return torch.distributions.kl_divergence(found, member)
    if rule == "FKL":
        return torch.distributions.kl_divergence(member, found)
    return (found.mean - member.mean) ** 2 + (found.stddev - member.stddev) ** 2


@pytest.mark.parametrize("rule", ["W2", "RKL", "FKL"])
def test_posteriors_go_to_the_minimum_of_the_weighted_divergences(rule: str) -> None:
    strength = 1.5  # lambda
    weights = strength / (1 + strength), 1 / (1 + strength)
    found = projected(LOCAL, GLOBAL, weights[0], rule, LAYOUT, posterior())
    for weight in range(2):
        pair = [
            torch.distributions.Normal(
                torch.tensor(float(each[2 + weight])), torch.tensor(float(np.exp(0.5 * each[4 + weight])))
            )
            for each in (LOCAL, GLOBAL)
        ]

        def loss(at: Any, pair: Any = pair) -> float:
            here = torch.distributions.Normal(torch.tensor(at[0]), torch.tensor(np.exp(0.5 * at[1])))
            return float(sum(share * divergence(rule, here, each) for share, each in zip(weights, pair, strict=True)))

        best = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}).x
        np.testing.assert_allclose([found[2 + weight], found[4 + weight]], best, atol=1e-3)


def test_variances_that_are_kept_within_bounds_stay_there() -> None:
    far = GLOBAL.copy()
    far[2:4] = 50.0  # forward KL's variance grows with the distance of the means
    inside = projected(LOCAL, far, 0.5, "FKL", LAYOUT, posterior("project", (-8.0, 2.0)))
    assert inside[4:].tolist() == [2.0, 2.0]
    assert (projected(LOCAL, far, 0.5, "FKL", LAYOUT, posterior("clamp", (-8.0, 2.0)))[4:] > 2).all()


def test_log_variances_beyond_the_bounds_count_as_at_them() -> None:
    local, shared = LOCAL.copy(), GLOBAL.copy()
    local[4:], shared[4:] = [-20.0, 1.0], [0.0, 20.0]
    found = projected(local, shared, 0.25, "W2", LAYOUT, posterior("clamp", (-6.0, 3.0)))
    deviations = [0.25 * np.exp(-3.0) + 0.75, 0.25 * np.exp(0.5) + 0.75 * np.exp(1.5)]
    np.testing.assert_allclose(found[4:], 2 * np.log(deviations), rtol=1e-6)


def test_a_client_whose_labels_the_test_set_lacks_counts_on_global_data_alone() -> None:
    """Three clients: of label 0, of label 1, which no test sample has, and without a model. The first says 0.9."""

    def predict(vector: torch.Tensor) -> Predictions:
        probabilities = np.array([[vector[0], 1 - vector[0]]] * 2, dtype=np.float32)
        return Predictions(probabilities, np.array([0, 0]), 10, None, np.zeros(2, dtype=np.float32))

    inputs = SimpleNamespace(
        indices=np.arange(4), offsets=np.array([0, 2, 3, 4]), train_labels=np.array([0, 0, 1, 0]), labels=2
    )
    inputs.sizes = np.diff(inputs.offsets)
    federation = SimpleNamespace(inputs=inputs, layout=None, settings=SimpleNamespace(posterior=None))
    model = torch.tensor([0.6])
    subject: Any = SimpleNamespace(
        federation=federation,
        model=model,
        predictions=predict(model),
        predict=predict,
        clients={0: torch.tensor([0.9]), 1: torch.tensor([0.3])},
    )
    asked = {"local_share": 0.5, "rule": "W2"}
    found = evaluate(subject, asked)
    expected = {
        "local_on_local": [-np.log(0.9), None, None],
        "local_on_global": [-np.log(0.9), -np.log(0.3), None],
        "global_on_local": [-np.log(0.6), None, None],
        "personal_on_local": [-np.log(0.75), None, None],
        "personal_on_global": [-np.log(0.75), -np.log(0.45), None],
    }
    for name, values in expected.items():
        assert found.clients[f"{name}_nll"] == pytest.approx(values, abs=2e-6)
        assert found.final[f"{name}_nll"] == pytest.approx(np.mean([v for v in values if v is not None]), abs=2e-6)
    del subject.clients[0]
    assert evaluate(subject, asked).final["local_on_local_nll"] is None
