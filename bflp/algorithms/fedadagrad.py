"""FedAdagrad: the server takes Adagrad's step along the mean change of the clients.

    v <- v + D^2

The rest is as in bflp.algorithms._adaptive; here b1 is 0 unless told otherwise.

Reddi et al. 2021, "Adaptive Federated Optimization" (arXiv 2003.00295).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, Lt

from bflp.algorithms._adaptive import step
from bflp.engine.local import Facts, Report, State

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("none",)  # as FedAdam
BROADCAST = ()


@dataclass(frozen=True)
class Settings:
    """Of FedAdagrad."""

    learning_rate: Annotated[float, Gt(0)] = 0.1
    """The server's."""
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Decay of the mean of changes."""
    tau: Annotated[float, Gt(0)] = 1e-3
    """Added to the root; the squares start at its square."""


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """See the module."""
    tau = settings.tau
    return step(model, reports, server, add, settings.learning_rate, settings.beta1, tau, tau**2)
