"""FedNova: the server averages the clients' normalised directions, so that more local steps give no more weight.

    d_k = (x - y_k) / a_k,    x <- x - (sum over k of beta_k a_k) sum over k of beta_k d_k

a_k is how far SGD goes where each gradient is 1 (`normaliser`): the number of steps without momentum. With equal
numbers of steps it is FedAvg, whatever the weights. mu: FedProx's pull besides, which a_k takes into account; the
authors' program counts wrongly with momentum and mu together, and then uses the mean number of steps in front.

A fixed point minimises sum over k of beta_k l_k up to an error of the order of the learning rate. Any participation;
nobody remembers anything. Only for SGD: adaptive optimisers have no a_k.

Wang et al. 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization" (arXiv
2007.07481).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from bflp.algorithms._steps import normaliser, total
from bflp.engine.local import Facts, Local, Report, State

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("none", "variational")
OPTIMISERS = ("sgd",)


@dataclass(frozen=True)
class Settings:
    """Of FedNova."""

    mu: Annotated[float, Ge(0)] = 0.0
    """Strength of FedProx's pull; 0: none."""


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """See the module."""
    return Local(pull=settings.mu, anchor=model) if settings.mu else Local()


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """See the module."""
    x = model.double()
    lengths = [normaliser(report.steps, facts, settings.mu) for report in reports]
    length = sum(report.weight * own for report, own in zip(reports, lengths, strict=True))
    directions = (each.weight / own * (x - each.vector.double()) for each, own in zip(reports, lengths, strict=True))
    return x - length * total(directions), {}
