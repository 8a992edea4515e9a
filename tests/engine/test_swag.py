"""SWAG's moments against gradient descent in numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from algorithms.conjugate import Linear, Quadratic, cell, train

from bflp.engine import swag
from bflp.engine.local import Gaussian, Local
from bflp.engine.settings import Training


@pytest.mark.parametrize("epochs", [1, 4, 5])
def test_moments_of_the_second_half_of_the_epochs(epochs: int) -> None:
    """Three equal samples, one per step; the prior N(0.5, 0.5^2) acts with 4 / 3 on the mean loss."""
    settings = cell(Training(epochs, 1, 0.05, 0.9, 0.0), "swag", mean=0.5, sd=0.5)
    start = torch.tensor([0.3]).double()
    vector = train(swag, Linear(np.array([[2.0, 1.0]] * 3)), start, 0 * start, settings)
    w, v, iterates = float(start), 0.0, []
    for _ in range(3 * epochs):
        v = 0.9 * v + 2 * (2 * w - 1) + 4 / 3 * (w - 0.5)
        w -= 0.05 * v
        iterates.append(w)
    half = iterates[3 * (epochs // 2) :]
    assert vector[0].item() == pytest.approx(np.mean(half), rel=1e-9)
    assert vector[1].exp().item() == pytest.approx(np.var(half), rel=1e-7)


def test_a_weight_that_never_moves_has_the_least_log_variance() -> None:
    settings = cell(Training(2, 1, 0.05, 0.9, 0.0), "swag")
    zeros = torch.zeros(1).double()
    vector = train(swag, Linear(np.zeros((3, 2))), zeros, zeros, settings)
    assert vector[0] == 0 and vector[1] == settings.posterior.bounds[0]  # type: ignore[union-attr]


def test_log_variances_stay_within_the_bounds() -> None:
    """One weight jumps from 2 to -2 and back, of variance 4, the other stays where it is."""
    settings = cell(Training(2, 1, 1.0, 0.0, 0.0), "swag", sd=1e6)
    assert settings.posterior is not None
    settings = replace(settings, posterior=replace(settings.posterior, bounds=(-8.0, 1.0)))
    curvature, start = torch.tensor([2.0, 0.0]).double(), torch.tensor([2.0, 1.0]).double()
    vector = train(swag, Quadratic(curvature, 0 * start, 4), start, 0 * start, settings)
    assert vector[2:].tolist() == [1.0, -8.0]


def test_an_algorithms_prior_takes_the_place_of_the_cells() -> None:
    settings = [cell(Training(2, 1, 0.05, 0.9, 0.0), "swag", mean=mean, sd=sd) for mean, sd in [(9.0, 0.1), (0.5, 0.5)]]
    network, start = Linear(np.array([[2.0, 1.0]] * 3)), torch.tensor([0.3]).double()
    prior = Gaussian(torch.tensor([4.0]).double(), torch.tensor([2.0]).double())
    given = train(swag, network, start, 0 * start, settings[0], local=Local(prior=prior))
    assert torch.equal(given, train(swag, network, start, 0 * start, settings[1]))
