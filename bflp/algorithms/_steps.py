"""What several algorithms share: FedNova's normaliser, sums over reports, what is remembered before the first round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from bflp.engine.local import Facts, Report, State

if TYPE_CHECKING:
    from torch import Tensor


def normaliser(steps: int, facts: Facts, pull: float = 0.0) -> float:
    """a_k: how far SGD goes in so many steps where each gradient is 1, in units of the learning rate.

        v <- momentum v + 1 - pull rate a,    a <- a + v

    so that x - y_k is rate a_k times a weighted mean of the client's gradients; pull: FedProx's, on the way back to x.
    """
    training, rate = facts.training, facts.training.rate(facts.round)
    velocity = moved = 0.0
    for _ in range(steps):
        velocity = training.momentum * velocity + 1 - pull * rate * moved
        moved += velocity
    return moved


def total(terms: Iterable[Tensor]) -> Tensor:
    """The sum of at least one tensor."""
    return reduce(add, terms)


def mean(reports: Sequence[Report]) -> Tensor:
    """FedAvg: the clients' parameters [D], averaged by their weights in float64."""
    return total(report.weight * report.vector.double() for report in reports)


def remembered(state: State, name: str, model: Tensor) -> Tensor:
    """An entry [D] of a state, in float64; zeros before the first round."""
    return state[name] if name in state else model.double().new_zeros(model.shape)
