"""Laplace where it is exact: a linear model with known noise whose residuals at the mode are all one deviation."""

from typing import Any

import numpy as np
import pytest
import torch
from algorithms.conjugate import Linear, cell, train

from bflp.engine import laplace
from bflp.engine.local import Gaussian, Local
from bflp.engine.settings import Training

NOISE = 0.5
INPUTS = np.array([[1, 1], [1, 1], [1, -1], [1, -1], [-1, 1], [-1, 1], [-1, -1], [-1, -1.0]]) * [1.0, 2.0]
SIGNS = np.array([1, 1, 1, -1, 1, -1, 1, -1.0])
PRIOR_MEAN, PRIOR_PRECISION = 0.3, 4.0


def data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows (x, y), and the mode: X' residuals / noise^2 = L0 (mode - prior mean), with residuals of one size."""
    mode = PRIOR_MEAN + INPUTS.T @ SIGNS / (NOISE * PRIOR_PRECISION)
    return np.column_stack([INPUTS, INPUTS @ mode + NOISE * SIGNS]), mode


def trained(local: Local, batch: int = 8, **prior: float) -> torch.Tensor:
    rows, _ = data()
    settings = cell(Training(400, batch, 0.05, 0.5, 0.0), "laplace", **prior)
    zeros = torch.zeros(2).double()
    return train(laplace, Linear(rows, NOISE**2), zeros, zeros, settings, local=local)


def test_is_the_exact_posterior() -> None:
    rows, mode = data()
    x, y = rows[:, :2], rows[:, 2]
    precision = x.T @ x / NOISE**2 + PRIOR_PRECISION * np.eye(2)
    mean = np.linalg.solve(precision, x.T @ y / NOISE**2 + PRIOR_PRECISION * PRIOR_MEAN)
    assert precision[0, 1] == 0 and mean == pytest.approx(mode) and abs(mode[0] - PRIOR_MEAN) > 0.5
    vector = trained(Local(), mean=PRIOR_MEAN, sd=PRIOR_PRECISION**-0.5)
    assert vector[:2].tolist() == pytest.approx(mean, rel=1e-9)
    assert (-vector[2:]).exp().tolist() == pytest.approx(np.diag(precision), rel=1e-9)


def test_an_algorithms_prior_takes_the_place_of_the_cells() -> None:
    precision = torch.full((2,), PRIOR_PRECISION).double()
    given = trained(Local(prior=Gaussian(precision, PRIOR_MEAN * precision)), mean=9.0, sd=0.1)
    assert torch.equal(given, trained(Local(), mean=PRIOR_MEAN, sd=PRIOR_PRECISION**-0.5))


def test_an_algorithms_pull_and_constant_act_beside_the_prior() -> None:
    """The minimum of loss + c w + q (w - a)^2 / 2 + L0 (w - m0)^2 / (2 n); without a weight on the prior it is gone."""
    rows, _ = data()
    x, y, n = rows[:, :2], rows[:, 2], len(rows)
    constant, pull, anchor = np.array([0.3, -0.2]), np.array([0.5, 2.0]), np.array([1.0, -1.0])
    for weight in (1.0, 0.0):
        strength = weight * PRIOR_PRECISION / n
        curvature = np.diag(x.T @ x) / NOISE**2 / n + pull + strength
        target = x.T @ y / NOISE**2 / n - constant + pull * anchor + strength * PRIOR_MEAN
        changes = [torch.from_numpy(each) for each in (constant, pull, anchor)]
        local = Local(changes[0], changes[1], changes[2], kl_weight=weight)
        found = trained(local, mean=PRIOR_MEAN, sd=PRIOR_PRECISION**-0.5)
        assert found[:2].tolist() == pytest.approx(target / curvature, rel=1e-9)
        # With no weight on the prior the data count once, too.
        squares = (x**2 * ((y - x @ found[:2].numpy()) ** 2)[:, None]).sum(0) / NOISE**4
        assert (-found[2:]).exp().tolist() == pytest.approx(squares + PRIOR_PRECISION, rel=1e-9)


def test_a_weight_on_the_divergence_makes_it_cold() -> None:
    """prior * likelihood^4 has the mode of rows that are there four times; the squares are the client's own."""
    rows, _ = data()
    x, y = rows[:, :2], rows[:, 2]
    likelihood = 4 * np.diag(x.T @ x) / NOISE**2
    mean = (4 * x.T @ y / NOISE**2 + PRIOR_PRECISION * PRIOR_MEAN) / (likelihood + PRIOR_PRECISION)
    squares = 4 * (x**2 * ((y - x @ mean) ** 2)[:, None]).sum(0) / NOISE**4
    found = trained(Local(kl_weight=0.25), mean=PRIOR_MEAN, sd=PRIOR_PRECISION**-0.5)
    assert found[:2].tolist() == pytest.approx(mean, rel=1e-9)
    assert (-found[2:]).exp().tolist() == pytest.approx(squares + PRIOR_PRECISION, rel=1e-9)


def test_the_precision_is_of_all_samples_whatever_the_batches() -> None:
    """At the weights that training ends at, which mini-batches leave beside the mode."""
    rows, mode = data()
    x, y = rows[:, :2], rows[:, 2]
    found = trained(Local(), batch=3, mean=PRIOR_MEAN, sd=PRIOR_PRECISION**-0.5)
    reached = found[:2].numpy()
    assert np.abs(reached - mode).max() > 1e-3
    squares = (x**2 * ((y - x @ reached) ** 2)[:, None]).sum(0) / NOISE**4
    assert (-found[2:]).exp().tolist() == pytest.approx(squares + PRIOR_PRECISION, rel=1e-9)
