"""FedYogi: the server takes Yogi's step along the mean change of the clients.

    v <- v - (1 - b2) D^2 sign(v - D^2)

The rest is as in bflp.algorithms._adaptive, where objective and variants are told.

Reddi et al. 2021, "Adaptive Federated Optimization" (arXiv 2003.00295).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bflp.algorithms._adaptive import Settings, corrected
from bflp.engine.local import Facts, Report, State

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BROADCAST", "KINDS", "Settings", "server"]
KINDS = ("none",)  # a log variance would move by about the rate in each round, whatever the clients found
BROADCAST = ()


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """See the module."""
    b2 = settings.beta2
    return corrected(model, reports, server, facts, settings, lambda v, new: v - (1 - b2) * new * (v - new).sign())
