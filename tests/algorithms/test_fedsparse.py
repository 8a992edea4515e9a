"""FedSparse: its gates against integrals, its client against autograd, its server against numerical minimisation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from algorithms.conjugate import Quadratic, cell
from algorithms.toy import Toy, near
from safetensors.torch import load as tensors_of
from scipy import integrate, optimize
from torch import Tensor

from bflp.algorithms import fedprox, fedsparse
from bflp.engine.client import client_update
from bflp.engine.local import Facts, Local, Report, State
from bflp.engine.settings import CellSettings, Training
from bflp.errors import ConfigError
from bflp.rng import torch_generator
from bflp.settings.schema import load

ROOT = Path(__file__).resolve().parents[2]

SGD, ADAM = {"name": "sgd"}, {"name": "adam", "betas": (0.9, 0.999), "epsilon": 1e-8}
SAMPLES, SHARE, CLIENTS = 7, 0.25, 3


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def facts(settings: CellSettings, network: Any, round_: int = 1, samples: int = SAMPLES, share: float = SHARE) -> Facts:
    start = torch.zeros(network.layout.size).double()
    return Facts(network.layout, settings.training, CLIENTS, samples, share, round_, (0.0, 0.0), start, settings, 0)


# The gates.


def drawn(logit: float, uniform: float) -> float:
    """By the formula of the paper on L0 regularisation."""
    s = 1 / (1 + np.exp(-(np.log(uniform) - np.log(1 - uniform) + logit) / (2 / 3)))
    return float(min(1, max(0, s * (1.1 - -0.1) + -0.1)))


@pytest.mark.parametrize("logit", [-4.0, -1.0, 0.0, 0.7, 3.0])
def test_gates_by_integrals_over_the_uniform_number(logit: float) -> None:
    """P(z > 0), E[z], and the derivative of E[z] by the logit, of which each gate's own is right on average."""
    # Where the gate leaves 0 and reaches 1, by bisection: the integrand is smooth between.
    kinks = [optimize.brentq(lambda u, at=at: drawn(logit, u) - at, 1e-12, 1 - 1e-12) for at in (1e-14, 1 - 1e-14)]
    above_zero = 1 - kinks[0]
    mean = integrate.quad(lambda u: drawn(logit, u), *kinks)[0] + 1 - kinks[1]
    probability = (torch.tensor(logit).double() + fedsparse.SHIFT).sigmoid()
    assert float(probability) == pytest.approx(above_zero, abs=1e-9)
    assert float(fedsparse.logit(probability)) == pytest.approx(logit)
    assert float(fedsparse.expected_gate(probability)) == pytest.approx(mean, abs=1e-7)

    def gate(uniform: float) -> tuple[float, float]:
        found = fedsparse.hard_concrete(vector(logit), vector(uniform))
        return float(found[0]), float(found[1])

    assert integrate.quad(lambda u: gate(u)[0], *kinks)[0] + 1 - kinks[1] == pytest.approx(mean, abs=1e-9)
    by_logit = optimize.approx_fprime(
        [logit], lambda a: float(fedsparse.expected_gate((torch.from_numpy(a) + fedsparse.SHIFT).sigmoid())), 1e-6
    )
    assert integrate.quad(lambda u: gate(u)[1], *kinks)[0] == pytest.approx(float(by_logit[0]), abs=1e-6)


def test_the_expected_number_of_open_gates() -> None:
    probabilities = torch.linspace(0.05, 0.99, 40).double().repeat(5000, 1)
    uniform = torch.empty_like(probabilities).uniform_(generator=torch.Generator().manual_seed(0))
    gates, _ = fedsparse.hard_concrete(fedsparse.logit(probabilities), uniform)
    assert float((gates > 0).double().sum(1).mean()) == pytest.approx(float(probabilities[0].sum()), abs=0.15)


# The client.


@pytest.mark.parametrize("optimiser", [SGD, ADAM], ids=["sgd", "adam"])
def test_weights_and_gates_take_the_steps_of_autograd(optimiser: dict[str, Any]) -> None:
    """A plain loop with torch's optimisers on the whole objective, divided by n_k; one weight is pruned."""
    settings = cell(Training(4, 2, 0.05, 0.9, 0.01), optimiser=optimiser)
    network: Any = Quadratic(vector(1, 4, 0.5, 2), vector(-1, 0.5, 3, 1), SAMPLES)
    own = fedsparse.Settings(precision=3.0, penalty=0.4, temperature=0.7, learning_rate=0.2)
    theta, model = vector(0.3, 0.95, 0.6, 0), vector(0.2, -0.1, 0.05, 0)
    local = fedsparse.local(model, {"theta": theta}, {}, facts(settings, network, 2), own)
    assert local.start is not None and local.sent is not None
    found = client_update(network, local.start, network.data[0], network.data[1], settings, 2, 0, None, local)

    w = torch.where(theta > 0, model / fedsparse.expected_gate(theta), 0.0)
    phi, logits = w.clone().requires_grad_(), (fedsparse.logit(theta).clamp(min=-1e4)).requires_grad_()
    adam = optimiser["name"] == "adam"
    optimisers = [
        torch.optim.Adam([each], rate, weight_decay=decay)
        if adam
        else torch.optim.SGD([each], rate, momentum=0.9, weight_decay=decay)
        for each, rate, decay in ((phi, 0.05, 0.01), (logits, 0.2, 0.0))
    ]
    generator = torch_generator(settings.seed, "weight noise", 2, 0)
    weight = 0.7 * CLIENTS * SHARE / SAMPLES
    prior = theta.clamp(0.01, 0.99)

    def gates() -> Tensor:
        uniform = torch.empty(4).double().uniform_(generator=generator)
        s = torch.sigmoid((torch.logit(uniform) + logits) / (2 / 3))
        return torch.clamp(s * 1.2 - 0.1, 0, 1)

    z = gates()
    for _ in range(16):
        for each in optimisers:
            each.zero_grad()
        pi = torch.sigmoid(logits - 2 / 3 * np.log(0.1 / 1.1))
        loss = (network.curvature * (phi * z - network.centre).square()).sum() / 2
        terms = 1.5 * pi * (phi - w).square() + 0.4 * pi - pi * prior.log() - (1 - pi) * (1 - prior).log()
        # Each minimises with the other fixed; steps are taken at once.
        (loss + weight * terms.sum()).backward()  # type: ignore[no-untyped-call]
        for each in optimisers:
            each.step()
        z = gates()
    assert found.vector.tolist() == pytest.approx(phi.tolist(), rel=1e-9)
    assert local.sent.tolist() == pytest.approx((phi * (z > 0)).tolist(), rel=1e-9)
    assert found.vector[3] == 0 and 0 < (local.sent != 0).sum() < 4


def test_each_client_draws_its_own_gates() -> None:
    known = facts(cell(Training(1, 7, 0.05, 0.0, 0.0)), SimpleNamespace(layout=SimpleNamespace(size=50)))
    throughs = [
        fedsparse.local(torch.ones(50).double(), {}, {}, replace(known, client=client), fedsparse.Settings()).through
        for client in (0, 1)
    ]
    one, other = (through.at(torch.ones(50).double()) for through in throughs if through is not None)
    assert (one != other).any()


@pytest.mark.parametrize(("penalty", "open_"), [(700.0, [True, False]), (6000.0, [False, False])])
def test_weights_stay_that_are_worth_their_penalty(penalty: float, open_: list[bool]) -> None:
    """n (w - c)^2 / 2 with n = 1000: the weight with c = 2 takes 2000 nats off the loss, that with c = 0 none."""
    network: Any = Quadratic(vector(1, 1), vector(2, 0), 1000)
    settings = cell(Training(60, 1000, 0.1, 0.0, 0.0))
    model = vector(0.5, 0.5)
    server: State = {}
    for round_ in range(1, 21):
        known = facts(settings, network, round_, samples=1000, share=1 / CLIENTS)
        own = fedsparse.Settings(penalty=penalty, learning_rate=1.0)
        local = fedsparse.local(model, server, {}, known, own)
        assert local.start is not None and local.sent is not None
        client_update(network, local.start, network.data[0], network.data[1], settings, round_, 0, None, local)
        model, server = fedsparse.server(model, [Report(0, local.sent, 1.0, 1.0, 1000, 60)], server, known, own)
    assert (server["theta"] > 0.9).tolist() == open_
    assert (server["theta"] == 0).tolist() == [not each for each in open_]
    assert model.tolist() == pytest.approx([2.0 * open_[0], 0], abs=0.2)


# The server.


def combined(theta: Tensor, vectors: list[list[float]], weights: Any, model: Tensor | None = None, **own: Any) -> Any:
    """w and theta after a round."""
    reports = [Report(k, vector(*sent), weights[k], 0.0, 1, 1) for k, sent in enumerate(vectors)]
    settings = cell(Training(1, 1, 0.1, 0.0, 0.0))
    before = torch.zeros(len(theta)).double() if model is None else model
    new, state = fedsparse.server(
        before,
        reports,
        {"theta": theta},
        facts(settings, SimpleNamespace(layout=SimpleNamespace(size=1))),
        fedsparse.Settings(**{"rate": 1.0, "threshold": 0.0, **own}),
    )
    return new / fedsparse.expected_gate(state["theta"]), state["theta"]


def test_of_open_gates_in_proportion_to_their_probabilities() -> None:
    """pi = (0.8, 0.2), phi = (1, -1): w = 0.6, theta = 0.5."""
    w, theta = combined(vector(0.9), [[1.0]] * 8 + [[0.0]] * 2 + [[-1.0]] * 2 + [[0.0]] * 8, [1 / 20] * 20)
    assert (float(w), float(theta)) == (pytest.approx(0.6), pytest.approx(0.5))


def test_is_the_minimum() -> None:
    generator = np.random.default_rng(0)
    phi, weights = generator.normal(size=(6, 3)) * (generator.random((6, 3)) < 0.6), generator.dirichlet(np.ones(6))
    z = phi != 0
    assert all(0 < opened < 6 for opened in z.sum(0))
    w, theta = combined(torch.full((3,), 0.7).double(), phi.tolist(), weights)

    def objective(x: Any) -> float:
        w, theta = x[:3], x[3:]
        each = 0.5 * 1.3 * z * (phi - w) ** 2 - z * np.log(theta) - (1 - z) * np.log(1 - theta)
        return float(weights @ each.sum(1))

    bounds = [(None, None)] * 3 + [(1e-6, 1 - 1e-6)] * 3
    found = optimize.minimize(objective, [0.0] * 3 + [0.5] * 3, bounds=bounds, tol=1e-12)
    assert [*w.tolist(), *theta.tolist()] == pytest.approx(found.x.tolist(), abs=1e-5)


def test_what_no_gate_lets_through_stays_until_it_is_pruned() -> None:
    before = vector(0.5, 0.5) * fedsparse.expected_gate(vector(0.4, 0.4))
    w, theta = combined(vector(0.4, 0.4), [[2.0, 0.0], [0.0, 0.0]], [0.5, 0.5], before, rate=0.5, threshold=0.1)
    assert w.tolist() == pytest.approx([2, 0.5])
    assert theta.tolist() == pytest.approx([0.45, 0.2])
    w, theta = combined(vector(0.15, 0.4), [[0.0, 1.0]], [1.0], rate=0.5, threshold=0.1)
    assert theta.tolist() == pytest.approx([0, 0.7])
    assert (torch.nan_to_num(w) * theta).tolist() == pytest.approx([0, 0.7])
    pruned = combined(vector(0.0, 0.4), [[0.0, 1.0]], [1.0])[1]
    assert pruned.tolist() == pytest.approx([0, fedsparse.MOST])
    # Below the threshold, not at it.
    assert combined(vector(0.5), [[1.0], [0.0]], [0.5, 0.5], threshold=0.5)[1].tolist() == [0.5]


# The whole.


@pytest.fixture
def open_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedsparse, "MOST", 1 - 1e-12)


def without_gates(precision: float) -> fedsparse.Settings:
    return fedsparse.Settings(precision=precision, penalty=0.0, initial=1 - 1e-12)


@pytest.mark.usefixtures("open_gates")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_without_gates_it_is_fedprox(mu: float, momentum: float) -> None:
    """By data, with lambda N p_k / n_k = mu: lambda 3 / 10; with mu = 0 that is FedAvg."""
    training = {"momentum": momentum, "learning_rate": 0.02}
    found = Toy(fedsparse, settings=without_gates(mu * 10 / 3), **training).rounds(5)
    assert found == [near(x) for x in Toy(fedprox, settings=fedprox.Settings(mu), **training).rounds(5)]


@pytest.mark.usefixtures("open_gates")
@pytest.mark.parametrize(("weights", "precision", "point"), [("data", 10 / 3, 1.3673469388), ("equal", 3, 1.064516129)])
def test_rests_at_the_mode_of_the_hierarchy(weights: str, precision: float, point: float) -> None:
    """Where clients solve their problems: with equal weights the paper's one lambda for all clients."""
    toy = Toy(
        fedsparse, weights=weights, settings=without_gates(precision), learning_rate=0.2, local_epochs=150, batch_size=6
    )
    toy.start(point, {"theta": 1 - 1e-12})
    assert toy.rounds(1)[0] == near(point)


def test_gates_must_not_start_below_the_threshold() -> None:
    files = [ROOT / "config.yaml", ROOT / "examples/methods/fedsparse.yaml"]
    with pytest.raises(ConfigError) as caught:
        load(files, {"models": {"FEDSPARSE": {"algorithm": {"name": "fedsparse", "initial": 0.05}}}})
    assert "models.FEDSPARSE: fedsparse: initial is 0.05, but must not be below threshold, 0.1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_states_are_of_double_precision() -> None:
    toy = Toy(fedsparse, dtype=torch.float32)
    toy.rounds(2)
    assert toy.server.model.dtype == torch.float32
    assert toy.server.state["theta"].dtype == torch.float64
    assert not toy.states or not any(toy.states.values())


def test_zeros_are_not_sent_but_for_a_bit() -> None:
    """Of three clients two send the number 0; the model is 0 from the second round on."""

    def local(model: Tensor, server: Any, client: Any, facts: Facts, settings: Any) -> Local:
        return Local(sent=model.new_full(model.shape, float(facts.client == 1)))

    def server(model: Tensor, *rest: Any) -> Any:
        return 0 * model, {"other": torch.ones(17)}

    toy = Toy(SimpleNamespace(SPARSE=True, local=local, server=server)).start(1.0)
    outcome = toy.federation.round(toy.server, 1, toy.executor)
    assert outcome.traffic == (3 * 1 + 4, 3 * (1 + 4))
    outcome = toy.federation.round(outcome.server, 2, toy.executor)
    assert outcome.traffic == (3 * 1 + 4, 3 * (1 + 3 + 4 * 17))


def test_its_traffic_is_of_open_gates(tiny: Any) -> None:
    own = {"name": "fedsparse", "learning_rate": 50.0, "penalty": 4.0, "rate": 1.0}
    (first, _, model), (second, _, _) = (
        tiny.run(
            tiny.job(
                "METHOD",
                None,
                models={"METHOD": {"algorithm": own}},
                setups={4: {"fraction": 0.75, "rounds": rounds}},
            ),
            str(rounds),
        )
        for rounds in (1, 2)
    )
    values = torch.cat([tensor.flatten() for tensor in tensors_of(model).values()])
    size, left = len(values), int(values.count_nonzero())
    assert 0.1 * size < left < 0.9 * size
    bits = -(-size // 8)
    assert second["traffic"]["down_bytes"][1] == 3 * 2 * (4 * left + bits)
    assert first["traffic"]["up_bytes"][0] == second["traffic"]["up_bytes"][0]
    assert 3 * bits < second["traffic"]["up_bytes"][1] < 3 * (4 * left + bits)
