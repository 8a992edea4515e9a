"""FedDyn: each client's objective is tilted so that its minimum moves to the federation's.

    client k minimises   l_k(w) + a_k <s_k, w> + (a_k / 2) ||w - x||^2,    a_k = alpha / (N p_k)
    afterwards:          s_k <- s_k + (y_k - x)
    server:              x <- mean over the round's clients of y_k + (1 / N) sum over all N clients of s_k

The paper's g_k is -a_k s_k. With p_k = 1 / N, as of `weights: equal`, this is the paper's algorithm, whose h is
-(alpha / N) times the sum of s_k; a_k in place of one alpha is the authors' program. The mean of the y_k is a plain one
in both.

A fixed point minimises sum over all k of p_k l_k, p_k = n_k / n with `weights: data`; local solves need not be exact.
The authors train without momentum and clip the gradient's norm at 10: where few local steps leave the client far from
its minimum, a small alpha makes the sum of s_k large. Any participation; clients keep s_k, the server keeps their sum.

Acar et al. 2021, "Federated Learning Based on Dynamic Regularization" (arXiv 2111.04263).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt

from bflp.algorithms._steps import remembered, total
from bflp.engine.local import Facts, Local, Report, State, Trained

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("none", "variational")
BROADCAST = ()


@dataclass(frozen=True)
class Settings:
    """The paper tries 0.1, 0.01 and 0.001."""

    alpha: Annotated[float, Gt(0)] = 0.01
    """Strength of the pull."""


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """See the module."""
    strength = settings.alpha / (facts.clients * facts.share)
    tilt = strength * remembered(client, "moved", model)
    return Local(constant=tilt.to(model.dtype), pull=strength, anchor=model)


def report(
    model: Tensor, trained: Trained, server: State, client: State, facts: Facts, settings: Settings
) -> tuple[State, State]:
    """See the module."""
    return {}, {"moved": remembered(client, "moved", model) + (trained.vector.double() - model.double())}


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """See the module."""
    x = model.double()
    moved = total(each.vector.double() - x for each in reports)
    sums = remembered(server, "moved", model) + moved
    return x + moved / len(reports) + sums / facts.clients, {"moved": sums}
