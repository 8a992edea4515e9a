"""FedAvgM: FedAvg with momentum on the server.

    d = sum over k of beta_k (x - y_k),    v <- mu v + d,    x <- x - eta v     (nesterov: x <- x - eta (d + mu v))

A fixed point is one of FedAvg, d = 0. Any participation; the server keeps v, clients nothing. The rate is in effect
eta / (1 - mu). With mu = 0 and eta = 1 it is FedAvg but for the order of sums in float64.

Hsu, Qi and Brown 2019, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification"
(arXiv 1909.06335), which tries mu of 0, 0.7, 0.9, 0.97, 0.99 and 0.997.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, Lt

from bflp.algorithms._steps import mean, remembered
from bflp.engine.local import Facts, Report, State

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("none", "variational")
BROADCAST = ()


@dataclass(frozen=True)
class Settings:
    """Of FedAvgM."""

    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """The server's, mu."""
    learning_rate: Annotated[float, Gt(0)] = 1.0
    """The server's, eta."""
    nesterov: bool = False
    """Whether the step looks ahead."""


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """See the module."""
    x, momentum = model.double(), settings.momentum
    step = x - mean(reports)
    velocity = momentum * remembered(server, "velocity", model) + step
    step = step + momentum * velocity if settings.nesterov else velocity
    return x - settings.learning_rate * step, {"velocity": velocity}
