"""IVON: one step by hand, where it comes to rest on quadratics, and a network through the engine."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from algorithms.conjugate import Quadratic, ivon_cell, train

from bflp.engine import ivon
from bflp.engine.errors import NotFiniteError
from bflp.engine.inputs import Inputs
from bflp.engine.local import Gaussian, Local
from bflp.engine.settings import Training
from bflp.engine.work import Broadcast, Evaluate, Train, Work

H, C = (2.0, 0.5, 0.01), (1.0, -2.0, 3.0)


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("rescale", "expected"), [(True, 0.1930265729), (False, 0.1892417381)])
def test_one_step_by_hand(monkeypatch: pytest.MonkeyPatch, rescale: bool, expected: float) -> None:
    """Loss (theta - 1)^2, ess 200, delta 0.02, noise 0.5: h 0.9998521821."""
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, generator: self.fill_(0.5))
    network = Quadratic(doubles(2.0), doubles(1.0), 200)
    settings = ivon_cell(Training(1, 200, 0.1, 0.0, 0.0), sd=0.5, rescale=rescale)
    vector = train(ivon, network, doubles(0.0), doubles(7.0), settings)
    assert vector[0].item() == pytest.approx(expected, rel=1e-9)
    assert vector[1].neg().exp().item() == pytest.approx(200 * (0.9998521821 + 0.02), rel=1e-9)


def test_second_round_starts_where_the_servers_variance_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise 0 and no learning of h: the precision stays, unless h starts afresh."""
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, generator: self.zero_())
    network = Quadratic(doubles(2.0), doubles(1.0), 200)
    for carry, expected in {True: 300.0, False: 200 * 1.02}.items():
        settings = ivon_cell(Training(1, 200, 0.1, 0.0, 0.0), sd=0.5, betas=(0.9, 1.0), carry=carry)
        vector = train(ivon, network, doubles(0.4), -doubles(300.0).log(), settings, round_=2)
        assert vector[1].neg().exp().item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("round_", "further"), [(1, {"clip_norm": 0.5}), (3, {"learning_rate_decay": 0.5})])
def test_a_clipped_gradient_and_a_later_round_make_a_step_shorter(
    monkeypatch: pytest.MonkeyPatch, round_: int, further: dict[str, float]
) -> None:
    """Noise 0 and h 1 throughout: a step is the rate times the gradient, -2; a quarter of it is left."""
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, generator: self.zero_())
    network = Quadratic(doubles(2.0), doubles(1.0), 200)
    settings = ivon_cell(Training(1, 200, 0.1, 0.0, 0.0, **further), betas=(0.9, 1.0), carry=False)  # type: ignore[arg-type]
    vector = train(ivon, network, doubles(0.0), doubles(0.0), settings, round_=round_)
    assert vector[0].item() == pytest.approx(0.05, rel=1e-5)


def test_several_steps_against_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 1 with a prior that is not centred and all that an algorithm may add; the gradient is clipped."""
    draws = list(np.random.default_rng(0).normal(size=(6, 2)))
    queue = iter(draws)
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, generator: self.copy_(torch.from_numpy(next(queue))))
    h, c, beta1, beta2, n, tau, clip = np.array([2.0, 0.5]), np.array([1.0, -2.0]), 0.8, 0.9, 6, 0.5, 1.5
    precision, centre, anchor = np.array([4.0, 2.0]), np.array([0.3, -0.5]), np.array([2.0, 0.5])
    constant, curvature, pull = np.array([0.2, -0.1]), np.array([0.4, 0.3]), 0.5
    ess, m, a, k = n / tau, np.array([0.1, 0.2]), np.zeros(2), np.full(2, 0.7)
    delta, losses, clipped = precision / ess, [], 0
    for step, draw in enumerate(draws, 1):
        theta = m + draw / np.sqrt(ess * (k + delta))
        losses.append((h * (theta - c) ** 2).sum() / 2)
        g = h * (theta - c) + pull * (theta - anchor)
        clipped += bool(np.linalg.norm(g) > clip)
        g *= min(1, clip / (np.linalg.norm(g) + 1e-6))
        found = ess * (k + delta) * (theta - m) * g + curvature
        a = beta1 * a + (1 - beta1) * g
        new = beta2 * k + (1 - beta2) * found + (1 - beta2) ** 2 * (k - found) ** 2 / (2 * (k + delta))
        numerator = a / (1 - beta1**step) + delta * (m - centre) + constant + curvature * m
        k, m = new, m - 0.1 * numerator / (new + delta)
    assert 0 < clipped < 6
    training = Training(2, 2, 0.1, 0.0, 0.0, clip_norm=clip)
    settings = ivon_cell(training, betas=(beta1, beta2), initial_hessian=0.7, temperature=tau, rescale=False)
    local = Local(
        *(torch.from_numpy(constant), pull, torch.from_numpy(anchor)),
        prior=Gaussian(torch.from_numpy(precision), torch.from_numpy(precision * centre)),
        curvature=torch.from_numpy(curvature),
    )
    network, start = Quadratic(doubles(*h), doubles(*c), n), doubles(0.1, 0.2)
    trained = ivon.train(network, start, 0 * start, *network.data, settings, 1, 0, None, local)  # type: ignore[arg-type]
    assert trained.vector[:2].tolist() == pytest.approx(m, rel=1e-12)
    assert (-trained.vector[2:]).exp().tolist() == pytest.approx(ess * (k + delta), rel=1e-12)
    assert (trained.steps, trained.loss) == (6, pytest.approx(np.mean(losses), rel=1e-6))


def test_every_round_and_client_has_noise_of_its_own() -> None:
    network, start = Quadratic(doubles(*H), doubles(*C), 4), doubles(0, 0, 0)
    settings = ivon_cell(Training(1, 4, 0.1, 0.0, 0.0), carry=False)
    found = [
        tuple(ivon.train(network, start, start, *network.data, settings, *address, None, Local()).vector.tolist())  # type: ignore[arg-type]
        for address in [(1, 0), (1, 1), (2, 0), (1, 0)]
    ]
    assert found[0] == found[3] and len(set(found)) == 3


def test_a_loss_that_is_not_finite_is_noticed() -> None:
    network = Quadratic(doubles(1.0), doubles(np.inf), 4)
    with pytest.raises(NotFiniteError, match="not finite"):
        train(ivon, network, doubles(0.0), doubles(0.0), ivon_cell(Training(1, 4, 0.1, 0.0, 0.0)))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["prior", "cold", "pull"])
def test_rests_at_the_posterior(case: str) -> None:
    """Means over 300 copies: precision n H / tau + S0, mean n H c / (tau precision); a pull is one more loss."""
    h, c = doubles(*H).repeat(300), doubles(*C).repeat(300)
    network = Quadratic(h, c, 200)
    temperature, local = (0.1, Local()) if case == "cold" else (1.0, Local())
    if case == "pull":
        local = Local(pull=0.5, anchor=0 * c + 2.0)
    settings = ivon_cell(
        Training(50, 1, 0.02, 0.0, 0.0), sd=0.5, betas=(0.9, 0.999), temperature=temperature, carry=True
    )
    n, start = 200, -doubles(200.0).log() + 0 * c
    vector = train(ivon, network, 0 * c, start, settings, round_=2, local=local)
    pulled = 0.5 if case == "pull" else 0.0
    precision = n * (np.array(H) + pulled) / temperature + 4
    mean = n * (np.array(H) * C + pulled * 2) / temperature / precision
    assert (-vector[900:]).exp().view(300, 3).mean(0).tolist() == pytest.approx(precision, rel=0.015)
    assert vector[:900].view(300, 3).mean(0).tolist() == pytest.approx(mean, abs=0.02)


def test_a_weight_on_the_divergence_is_a_temperature() -> None:
    network = Quadratic(doubles(*H), doubles(*C), 200)
    vectors = []
    for temperature, weight in [(0.5, 1.0), (1.0, 0.5)]:
        settings = ivon_cell(Training(3, 50, 0.1, 0.0, 0.0), temperature=temperature)
        local = Local(prior=Gaussian(doubles(1, 2, 3), doubles(0, 1, 0)), kl_weight=weight)
        vectors.append(train(ivon, network, doubles(0, 0, 0), doubles(0, 0, 0), settings, local=local))
    assert torch.equal(*vectors)


def test_a_network_learns_and_its_posterior_is_not_the_initial_one() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 120)
    centres, noise = generator.normal(size=(3, 6)), generator.normal(size=(120, 6))
    features = (centres[labels] + 0.3 * noise).astype(np.float32)
    inputs = Inputs(features, labels, features, labels, 3, np.arange(120), np.array([0, 120]))
    settings = ivon_cell(Training(10, 20, 0.1, 0.0, 0.0), betas=(0.9, 0.99), initial_hessian=0.1)
    settings = replace(settings, network={"name": "mlp", "sizes": [8]})
    work = Work(settings, inputs, "cpu")
    before = work.initial.clone()
    answer = work.train(Broadcast(before), Train(1, 0))
    assert torch.equal(work.initial, before) and answer.steps == 60
    assert work.layout.deterministic == slice(0, 0) and len(answer.vector) == 2 * (6 * 8 + 8 + 8 * 3 + 3)
    probabilities, _ = work.evaluate(Broadcast(answer.vector), Evaluate(1, 0, 8))
    assert np.mean(probabilities.argmax(1) == labels) > 0.9
    precision = (-answer.vector[work.layout.log_variances]).exp()
    assert float(precision.min()) > 0 and float(precision.std() / precision.mean()) > 0.1
