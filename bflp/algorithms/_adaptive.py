"""FedOpt: the server's step from the mean change of the clients as from a gradient, with a rate per parameter.

    D = sum over k of beta_k (y_k - x),    m <- b1 m + (1 - b1) D,    v <- (Adagrad's, Adam's or Yogi's),
    x <- x + rate m / (sqrt(v) + tau)

Reddi et al. 2021, "Adaptive Federated Optimization" (arXiv 2003.00295), algorithm 2. `variant: paper` is that one: v
starts at tau^2 and nothing is corrected. `variant: tff` is the authors' program in TensorFlow Federated: v starts at 0,
and rate sqrt(1 - b2^t) / (1 - b1^t) replaces the rate in round t (there b2 is 0.999).

A fixed point is one of FedAvg, D = 0. Any participation; the server keeps m and v, clients nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Gt, Lt

from bflp.algorithms._steps import mean, remembered
from bflp.engine.local import Facts, Report, State

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Settings:
    """Of FedAdam and FedYogi. The best rates in the paper span 0.003 to 1: tune it."""

    learning_rate: Annotated[float, Gt(0)] = 0.01
    """The server's."""
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Decay of the mean of changes."""
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99
    """Decay of the mean of squared changes."""
    tau: Annotated[float, Gt(0)] = 1e-3
    """Added to the root; the larger, the less adaptive."""
    variant: Literal["paper", "tff"] = "paper"
    """tff: bias correction, and squares that start at 0."""


def corrected(
    model: Tensor,
    reports: Sequence[Report],
    server: State,
    facts: Facts,
    settings: Settings,
    squares: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, State]:
    """The step of FedAdam and FedYogi in the chosen variant; for the rest see `step`."""
    rate, start = settings.learning_rate, settings.tau**2
    if settings.variant == "tff":
        start, rate = 0.0, rate * math.sqrt(1 - settings.beta2**facts.round) / (1 - settings.beta1**facts.round)
    return step(model, reports, server, squares, rate, settings.beta1, settings.tau, start)


def step(
    model: Tensor,
    reports: Sequence[Report],
    server: State,
    squares: Callable[[Tensor, Tensor], Tensor],
    rate: float,
    beta1: float,
    tau: float,
    start: float,
) -> tuple[Tensor, State]:
    """The new model [D] and m, v. squares: v and D^2 -> the new v; start: of v."""
    x = model.double()
    change = mean(reports) - x
    momentum = beta1 * remembered(server, "momentum", model) + (1 - beta1) * change
    second = squares(server["squares"] if "squares" in server else x.new_full(x.shape, start), change.square())
    return x + rate * momentum / (second.sqrt() + tau), {"momentum": momentum, "squares": second}
