"""SCAFFOLD, option II: control variates take the clients' drift out of their gradients.

    each step:    gradient - c_k + c, before momentum
    afterwards:   c_k <- c_k - c + (x - y_k) / (rate a_k)
    server:       x <- x + eta sum over k of beta_k (y_k - x),   c <- c + sum over the round's k of p_k (c_k's change)

Started at zeros, c is always the sum over all N clients of p_k c_k, so that absent clients keep counting. a_k is the
number of steps, as in the paper, without momentum; with momentum it is FedNova's normaliser: the number of steps would
multiply c_k - c by 1 - a_k / steps in each round, which diverges. Programs that correct the parameters after the
momentum step instead (NIID-Bench, Flower) divide by the number of steps, at the price of a bias of the order of the
rate; that form is not here.

A fixed point minimises sum over all k of p_k l_k: p_k = n_k / n with `weights: data`, where the paper has 1 / N, as
`weights: equal` does. Weight decay is a part of l_k. Any participation; clients keep c_k, the server keeps c and sends
it; from y_k it can tell the change of c_k itself. Only for SGD.

Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning" (arXiv 1910.06378).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt

from bflp.algorithms._steps import mean, normaliser, remembered, total
from bflp.engine.local import Facts, Local, Report, State, Trained

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("none", "variational")
OPTIMISERS = ("sgd",)


@dataclass(frozen=True)
class Settings:
    """Of SCAFFOLD."""

    learning_rate: Annotated[float, Gt(0)] = 1.0
    """The server's, eta."""


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """See the module."""
    correction = remembered(server, "control", model) - remembered(client, "control", model)
    return Local(constant=correction.to(model.dtype))


def report(
    model: Tensor, trained: Trained, server: State, client: State, facts: Facts, settings: Settings
) -> tuple[State, State]:
    """See the module."""
    change = _change(model, trained.vector, trained.steps, server, facts)
    return {}, {"control": remembered(client, "control", model) + change}


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """See the module."""
    x, control = model.double(), remembered(server, "control", model)
    changes = total(each.share * _change(model, each.vector, each.steps, server, facts) for each in reports)
    return x + settings.learning_rate * (mean(reports) - x), {"control": control + changes}


def _change(model: Tensor, vector: Tensor, steps: int, server: State, facts: Facts) -> Tensor:
    """Of a client's control variate in a round [D]: its mean corrected gradient, less c."""
    moved = (model.double() - vector.double()) / (facts.training.rate(facts.round) * normaliser(steps, facts))
    return moved - remembered(server, "control", model)
