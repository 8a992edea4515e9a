"""Every algorithm that remembers, started at its optimum with the states that belong there, does not move.

Each function below gives the models before and after one round from there. shift: what is added to the states, or to
the model, so that it must move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from algorithms.conjugate import CENTRES as CENTRES_G
from algorithms.conjugate import CURVATURES as CURVATURES_G
from algorithms.conjugate import EXACT_MEAN, EXACT_PRECISION, Conjugate
from algorithms.test_fedpa import C, toy
from algorithms.test_fola import Toy as Fola
from algorithms.test_traffic import method
from algorithms.toy import CENTRES, CURVATURES, SIZES, WEIGHTED, Toy, held
from tiny_federation import TinyFederation
from torch import Tensor

from bflp import algorithms
from bflp.algorithms import (
    bayesadmm,
    fedadagrad,
    fedadam,
    fedavgm,
    feddyn,
    fedsparse,
    fedyogi,
    pvi,
    scaffold,
)
from bflp.engine.local import Trained
from bflp.engine.round import Federation
from bflp.runtime.rule import checked_rule

FEDPROX = 0.67 / 0.49  # where FedProx with mu = 1 and exact clients rests
Move = tuple[Tensor, Tensor]


def moved(toy: Toy, at: float, server: Mapping[str, float], clients: list[dict[str, float]], shift: float) -> Move:
    """shift: added to all that is remembered."""
    remembered = [{name: value + shift for name, value in state.items()} for state in (server, *clients)]
    toy.start(at, remembered[0], remembered[1:])
    return torch.tensor([at], dtype=torch.float64), torch.tensor(toy.rounds(1), dtype=torch.float64)


def of_scaffold(shift: float) -> Move:
    gradients = [{"control": gradient} for gradient in CURVATURES * (WEIGHTED - CENTRES)]
    # The same for all clients and the server would cancel.
    gradients[0]["control"] += shift
    return moved(Toy(scaffold, momentum=0.9), WEIGHTED, {"control": 0.0}, gradients, shift)


def of_feddyn(shift: float) -> Move:
    strengths = 0.1 / (3 * SIZES / SIZES.sum())
    shifts = [{"moved": value} for value in -CURVATURES * (WEIGHTED - CENTRES) / strengths]
    return moved(Toy(feddyn, settings=feddyn.Settings(0.1)), WEIGHTED, {"moved": 0.0}, shifts, shift)


def of_server_steps(module: Any, **server: float) -> Callable[[float], Move]:
    return lambda shift: moved(Toy(held(module), exact=True, settings=module.Settings()), FEDPROX, server, [], shift)


def of_fedadagrad(shift: float) -> Move:
    """Where all clients agree, what it remembers moves nothing: the model is shifted instead."""
    toy = Toy(held(fedadagrad), exact=True, settings=fedadagrad.Settings())
    return moved(toy, FEDPROX + shift, {"momentum": 0.0, "squares": 0.01}, [], 0.0)


def of_fedpa(shift: float) -> Move:
    """Without a covariance, so that it rests at the mean of the clients' samples."""
    federation = toy(shrinkage=0.0)
    before = federation.model = torch.tensor([1.85]).double()
    federation.server = {"velocity": torch.full((1,), shift).double()}
    samples = {k: [torch.tensor([C[k] + s]).double() for s in (-1, 1)] for k in range(3)}
    federation.round(trained=lambda k: Trained(torch.zeros(1), 0.0, 1, averages=samples[k]))
    return before, federation.model


def of_fola(shift: float) -> Move:
    federation = Fola(1.0)
    before = torch.tensor([0.875, 0.0]).double()
    federation.server = {"curvature": torch.tensor([1.8]).double()}
    federation.model = before = before + shift  # a pull from the optimum to itself is none, whatever the curvature
    federation.round()
    return before[:1], federation.model[:1]


def of_pvi(shift: float) -> Move:
    federation, (mean, precision) = Conjugate(pvi), exact()
    sites = (CURVATURES_G + shift, CURVATURES_G * CENTRES_G)
    federation.states = {k: {"precision": sites[0][k], "shift": sites[1][k]} for k in range(3)}
    federation.server = {"precision": precision, "shift": precision * mean}
    return one_round(federation, mean, precision)


def of_bayesadmm(shift: float) -> Move:
    federation = Conjugate(bayesadmm, bayesadmm.Settings(rho=1.0, damping=1.0), kind="ivon")
    mean, precision = exact()
    own = {"precision": precision, "shift": precision * mean}
    duals = (shift - CURVATURES_G, -CURVATURES_G * CENTRES_G)
    federation.states = {k: {"dual_precision": duals[0][k], "dual_shift": duals[1][k], **own} for k in range(3)}
    federation.server = {name: sum(each[name] for each in federation.states.values()) for name in federation.states[0]}  # type: ignore[misc]
    return one_round(federation, mean, precision)


def exact() -> tuple[Tensor, Tensor]:
    return torch.tensor(EXACT_MEAN).double(), torch.tensor(EXACT_PRECISION).double()


def one_round(federation: Conjugate, mean: Tensor, precision: Tensor) -> Move:
    federation.model = before = torch.cat([mean, -precision.log()])
    federation.round()
    return before, federation.model


def of_fedsparse(shift: float) -> Move:
    """With gates that are open for sure, where FedProx rests; the clients' training is long, not exact."""
    settings = fedsparse.Settings(precision=10 / 3, penalty=0.0)
    toy = Toy(fedsparse, settings=settings, learning_rate=0.2, local_epochs=150, batch_size=6)
    return moved(toy, FEDPROX, {"theta": 1 - 1e-12 - shift}, [], 0.0)


AT_REST: dict[str, Callable[[float], Move]] = {
    "scaffold": of_scaffold,
    "feddyn": of_feddyn,
    "fedavgm": of_server_steps(fedavgm, velocity=0.0),
    "fedadam": of_server_steps(fedadam, momentum=0.0, squares=0.01),
    "fedyogi": of_server_steps(fedyogi, momentum=0.0, squares=0.01),
    "fedadagrad": of_fedadagrad,
    "fedpa": of_fedpa,
    "fola": of_fola,
    "pvi": of_pvi,
    "bayesadmm": of_bayesadmm,
    "fedsparse": of_fedsparse,
}


@pytest.mark.parametrize("name", AT_REST)
def test_does_not_move_from_its_optimum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedsparse, "MOST", 1 - 1e-12)
    before, after = AT_REST[name](0.0)
    assert (after - before).abs().max() < 1e-7
    before, after = AT_REST[name](0.3)
    assert (after - before).abs().max() > 1e-6


@pytest.mark.parametrize("name", algorithms.names())
def test_of_all_that_remember(name: str, tiny: TinyFederation) -> None:
    """An algorithm with a state has its place above; pFedBayes, whose clients move, in its own tests."""
    entry, rule = method(name)
    assignment = tiny.assignment(tiny.job("METHOD", rule, models={"METHOD": entry}))
    work = assignment.work()
    federation = Federation(work, 20, checked_rule(assignment))
    federation.is_evaluated = lambda round_: False  # type: ignore[method-assign]
    here = SimpleNamespace(run=lambda sent, tasks: [work.train(sent, each) for each in tasks])
    outcome = federation.round(federation.initial(), 1, here)
    assert bool(outcome.server.state or any(outcome.clients.values())) == (name in {*AT_REST, "pfedbayes"})
