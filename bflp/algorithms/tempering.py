"""A weight on the divergence from the prior, constant (tempering) or growing over the first rounds (annealing).

    n_k E_q[l_k] + weight KL(q || prior)        l_k: mean loss

so that the client's optimum is prior * likelihood^(1 / weight): below 1 the likelihood counts more, as in a cold
posterior, of which the prior is sharpened, too; 1 is FedAvg with the aggregation rule, which stays as it is. The weight
of round r is start + (weight - start) min(1, (r - 1) / rounds): absolute rounds, so that more rounds change nothing of
those before.

With weight 0 the prior takes no part in training; the variance of posterior laplace has no limit there, and counts the
likelihood once, as with weight 1: begin its annealing with a `start` above 0.

Any participation, no state. Wenzel et al. (2020), "How Good is the Bayes Posterior in Deep Neural Networks Really?"
(arXiv 2002.02405); annealing: Bowman et al. (2016), (arXiv 1511.06349), section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from bflp.engine.local import Facts, Local, State

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("variational", "laplace")


@dataclass(frozen=True)
class Settings:
    """Of tempering."""

    weight: Annotated[float, Ge(0)] = 0.1
    """Of the divergence, after the annealing."""
    start: Annotated[float, Ge(0)] = 0.0
    """In the first round, where there is annealing; above 0 with posterior laplace."""
    rounds: Annotated[int, Ge(0)] = 0
    """How many the annealing takes; 0: none, `weight` counts from the first round on."""


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """The round's weight."""
    share = min(1.0, (facts.round - 1) / settings.rounds) if settings.rounds else 1.0
    return Local(kl_weight=settings.start + share * (settings.weight - settings.start))
