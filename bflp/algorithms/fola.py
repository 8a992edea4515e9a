"""FOLA, federated online Laplace approximation: clients are pulled to the server's mean as strongly as each weight is
known already.

In round r, with the server's mean m and curvature O (0 at first), client k minimises

    l_k(w) + (kappa / 2) sum O (w - m)^2,    kappa = penalty / r        l_k: mean loss

and sends w_k and F_k, the mean over its samples of the squared gradients (the empirical Fisher). With weights beta_k
and O_k = kappa O + F_k the server takes

    O <- sum_k beta_k O_k        m <- sum_k beta_k (O_k + floor) w_k / sum_k beta_k (O_k + floor)

Its posterior has the mean m and the precision n sum_k beta_k F_k + L0: curvature of this round alone for all n samples,
and the prior's precision. The prior does not act in training.

The fixed point minimises sum_k beta_k l_k where losses are quadratic. This is the consistent form: the same kappa O
stands in the penalty and in O_k. In the authors' program the penalty has no gradient, since it is built of detached
tensors; were it to act, O in O_k with O / r in the penalty would drift from the optimum.

Any participation, no state of clients; the server keeps O. Liu et al. (2021), "A Bayesian Federated Learning Framework
with Online Laplace Approximation" (arXiv 2102.01936).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt

from bflp.engine.local import Facts, Local, Report, State, Trained

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("laplace",)
SENDS_PARAMETERS = False


@dataclass(frozen=True)
class Settings:
    """Of FOLA."""

    penalty: Annotated[float, Ge(0)] = 1.0
    """The authors' lambda. What is known counts by it over the round: far above 1 the first rounds fix the model."""
    floor: Annotated[float, Gt(0)] = 1e-5
    """Added to curvatures, which may be 0 for all clients."""


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """The pull on the means; no prior."""
    if not server:
        return Local(kl_weight=0.0)
    pull = settings.penalty / facts.round * server["curvature"]
    return Local(pull=pull.to(model.dtype), anchor=model[facts.layout.means], kl_weight=0.0)


def report(
    model: Tensor, trained: Trained, server: State, client: State, facts: Facts, settings: Settings
) -> tuple[State, State]:
    """w_k and F_k; nothing is kept."""
    assert trained.squares is not None
    return {"means": trained.vector[facts.layout.means], "fisher": trained.squares}, {}


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """Means by their curvature; the precision of the whole data."""
    layout, new = facts.layout, model.double().clone()
    zero = 0 * new[layout.means]
    known = settings.penalty / facts.round * server["curvature"] if server else zero
    fisher = sum((each.weight * each.message["fisher"].double() for each in reports), zero)
    shift = sum(
        each.weight * (known + each.message["fisher"] + settings.floor) * each.message["means"].double()
        for each in reports
    )
    new[layout.means] = shift / (known + fisher + settings.floor)
    new[layout.log_variances] = -(facts.samples * fisher + facts.prior[1]).log()
    return new, {"curvature": known + fisher}
