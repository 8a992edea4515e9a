"""FedPA's recursion against dense linear algebra, its server against hand-computed steps and fixed points."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithms.conjugate import Conjugate, Linear, cell, quadratic

from bflp.algorithms import fedpa
from bflp.engine.client import client_update
from bflp.engine.local import Trained
from bflp.engine.settings import Training
from bflp.errors import ConfigError
from bflp.settings.schema import load

C, H, SIZES = (-1.0, 0.5, 3.0), (1.0, 4.0, 0.5), (100, 300, 600)


def toy(**settings: float) -> Conjugate:
    likelihoods = [quadratic(torch.tensor([0.0]), torch.tensor([0.0]))] * 3
    return Conjugate(fedpa, fedpa.Settings(**settings), likelihoods, "none", weights=1, sizes=SIZES)  # type: ignore[arg-type]


def test_hand_computed() -> None:
    samples = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 1.0]]).double()
    found = fedpa.preconditioned(torch.tensor([3.0, -1.0]).double(), list(samples), 0.5)
    assert found.tolist() == pytest.approx([1.6, -1.6], rel=1e-12)


@pytest.mark.parametrize(("weights", "number", "rho"), [(3, 2, 0.3), (50, 30, 0.01), (4, 9, 5.0), (6, 1, 1.0)])
def test_recursion_is_the_dense_solution(weights: int, number: int, rho: float) -> None:
    generator = np.random.default_rng(weights)
    samples, model = generator.normal(size=(number, weights)), generator.normal(size=weights)
    covariance = np.cov(samples, rowvar=False) if number > 1 else np.zeros((weights, weights))
    r = 1 / (1 + (number - 1) * rho)
    expected = np.linalg.solve(r * np.eye(weights) + (1 - r) * covariance, model - samples.mean(0))
    found = fedpa.preconditioned(torch.from_numpy(model), list(torch.from_numpy(samples)), rho)
    assert np.allclose(found.numpy(), expected, rtol=1e-10, atol=1e-12)


def test_rho_zero_with_a_plain_server_averages_the_mean_samples() -> None:
    plain = toy(shrinkage=0.0, server_learning_rate=1.0, server_momentum=0.0)
    samples = {client: [torch.tensor([C[client] + shift]).double() for shift in (-1, 0, 4)] for client in range(3)}
    plain.round(trained=lambda client: Trained(torch.full((1,), 99.0), 0.0, 1, averages=samples[client]))
    assert plain.model.tolist() == pytest.approx([0.1 * 0 + 0.3 * 1.5 + 0.6 * 4], rel=1e-12)


def test_two_steps_of_the_server_by_hand() -> None:
    """Constant samples c: x1 = 0.5 * 1.85; v2 = 0.9 * -1.85 + (0.925 - 1.85) = -2.59; x2 = 0.925 + 1.295."""
    momentum = toy(shrinkage=0.0)
    for expected in (0.925, 2.22):
        momentum.round(trained=lambda client: Trained(torch.zeros(1), 0.0, 1, averages=[torch.full((1,), C[client])]))
        assert momentum.model.tolist() == pytest.approx([expected], rel=1e-7)


@pytest.mark.parametrize(("rho", "number", "expected"), [(0.01, 5, 1.8119), (1e9, 5, 0.875)])
def test_fixed_point_on_quadratics(rho: float, number: int, expected: float) -> None:
    """Samples with mean c and unbiased variance 1 / h."""
    shape = np.linspace(-1, 1, number)
    samples = [C[k] + shape / shape.std(ddof=1) / H[k] ** 0.5 for k in range(3)]
    federation = toy(shrinkage=rho, server_momentum=0.5)

    def sampled(k: int) -> Trained:
        return Trained(torch.zeros(1), 0.0, 1, averages=list(torch.tensor(samples[k])[:, None]))

    for _ in range(60):
        federation.round(trained=sampled)
    assert federation.model.tolist() == pytest.approx([expected], abs=5e-5)


def test_before_its_start_it_sends_the_whole_training() -> None:
    late = toy(start=2, server_learning_rate=1.0, server_momentum=0.0)
    late.round(trained=lambda client: Trained(torch.tensor([C[client]]).double(), 0.0, 1))
    assert late.model.tolist() == pytest.approx([1.85])
    assert late.local(0).averages_from is None
    late.done = 2
    assert late.local(0).averages_from == 1


def test_burn_in_must_leave_an_epoch() -> None:
    root = Path(__file__).resolve().parents[2]
    files = [root / "config.yaml", root / "examples/methods/fedpa.yaml"]
    assert load(files, {"training": {"local_epochs": 2}}).method("FEDPA").algorithm["burn_in"] == 1
    with pytest.raises(ConfigError) as raised:
        load(files, {"training": {"local_epochs": 1}})
    assert str(raised.value).endswith(
        "fedpa.yaml, line 10: models.FEDPA: fedpa: burn_in is 1, but must be below the number of local epochs, 1"
    )


def test_samples_are_the_means_of_an_epochs_iterates() -> None:
    """Gradient descent in numpy; each epoch of one sample per batch has as many iterates as samples."""
    network: Any = Linear(np.array([[2.0, 1.0]] * 3))  # three equal samples: their order is no matter
    inputs, labels = network.data
    settings = cell(Training(4, 1, 0.1, 0.5, 0.0))
    federation = toy(burn_in=2)
    federation.done = 1
    local = federation.local(0)
    trained = client_update(network, torch.tensor([0.3]).double(), inputs, labels, settings, 1, 0, None, local)
    w, v, iterates = 0.3, 0.0, []
    for _ in range(12):
        v = 0.5 * v + 2 * (2 * w - 1)
        w -= 0.1 * v
        iterates.append(w)
    assert [float(each) for each in trained.averages] == pytest.approx([np.mean(iterates[6:9]), np.mean(iterates[9:])])
