"""FedProx: clients are held near the server's model while they train.

    client k minimises   l_k(w) + (mu / 2) ||w - x||^2,    x the model that it received

as a part of the gradient, mu (w - x), before momentum. The server is FedAvg's: the weighted mean, and the aggregation
rule for Gaussian posteriors. There the pull acts on means and log variances alike; it is no divergence between them.

A fixed point is no minimum of the clients' mean loss, sum over k of beta_k l_k, but comes near it as mu grows, when
rounds move the model less. With mu = 0 it is FedAvg bit for bit. Any participation; nobody remembers anything.

Li et al. 2020, "Federated Optimization in Heterogeneous Networks" (arXiv 1812.06127). The paper draws clients in
proportion to their data and takes their plain mean; here clients are drawn alike and weigh what `weights` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from bflp.engine.local import Facts, Local, State

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("none", "variational")


@dataclass(frozen=True)
class Settings:
    """The paper tries 0.001, 0.01, 0.1 and 1."""

    mu: Annotated[float, Ge(0)] = 0.01
    """Strength of the pull."""


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """See the module."""
    return Local(pull=settings.mu, anchor=model)
