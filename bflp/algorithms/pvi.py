"""PVI, partitioned variational inference: each client refines a factor that stands for its own data.

The posterior is q ~ prior * t_1 * ... * t_N with a Gaussian factor per client, its site, which need not be proper. In
natural parameters (precision, precision * mean) products are sums. In a round client k minimises, starting from q,

    n_k E_q'[l_k] + KL(q' || cavity),    cavity ~ q / t_k        l_k: mean loss

and, with D_k = q'_k - q,    t_k <- t_k + damping D_k,    q <- q + sum over the round's clients of damping D_k.

Every fixed point is a stationary point of variational inference on all clients' data, E_q[sum_k n_k l_k] +
KL(q || prior), whatever the weights. Any participation: the sites of absent clients stay as they are. Damping 1 may
fail to converge when clients train at the same time; 1 / N is safe.

Sites start at t_k = share_k (q_0 - prior), so that prior * t_1 * ... * t_N is the initial model also where that is not
the prior. Guard: a client scales its D_k down, weight by weight, so that it takes at most 0.9 share_k of the precision;
q then stays proper and is always the product of prior and sites. D_k is computed from log variances within the bounds,
as the loss uses them. Deterministic tensors are averaged by weight. Weight decay would bias the fixed point.

Clients keep their sites; the server keeps q in float64. Bui et al. (2018), "Partitioned Variational Inference" (arXiv
1811.11206); Ashman et al. (2022), (arXiv 2202.12275), sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt, Le

from bflp.engine.local import Facts, Gaussian, Local, Report, State, Trained

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("variational",)
SENDS_PARAMETERS = False
MOST_TAKEN = 0.9  # of the precision, by all clients together in a round


@dataclass(frozen=True)
class Settings:
    """Of PVI."""

    damping: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of each client's change that is taken over."""


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """The cavity instead of the prior."""
    q, site = _received(model, server, facts), _site(model, client, facts)
    cavity = Gaussian((q.precision - site.precision).to(model.dtype), (q.shift - site.shift).to(model.dtype))
    return Local(prior=cavity)


def report(
    model: Tensor, trained: Trained, server: State, client: State, facts: Facts, settings: Settings
) -> tuple[State, State]:
    """The change of the site, and the deterministic tensors; the site."""
    q, site, found = _received(model, server, facts), _site(model, client, facts), _natural(trained.vector, facts)
    gain = found.precision - q.precision
    factor = (MOST_TAKEN * facts.share * q.precision / (-gain).clamp(min=1e-300)).clamp(max=settings.damping)
    change = Gaussian(factor * gain, factor * (found.shift - q.shift))
    message = {**change._asdict(), "deterministic": trained.vector[facts.layout.deterministic]}
    return message, Gaussian(site.precision + change.precision, site.shift + change.shift)._asdict()


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """The product of the prior and all sites."""
    layout, q = facts.layout, _received(model, server, facts)
    precision, shift = q
    new = model.double().clone()
    new[layout.deterministic] = 0.0
    for each in reports:
        precision, shift = precision + each.message["precision"], shift + each.message["shift"]
        new[layout.deterministic] += each.weight * each.message["deterministic"].double()
    new[layout.means], new[layout.log_variances] = shift / precision, -precision.log()
    return new, Gaussian(precision, shift)._asdict()


def _received(model: Tensor, server: State, facts: Facts) -> Gaussian:
    """q before the round."""
    return Gaussian(**server) if server else _natural(model, facts)


def _site(model: Tensor, client: State, facts: Facts) -> Gaussian:
    """t_k before the round."""
    if client:
        return Gaussian(**client)
    mean, precision = facts.prior
    q = _natural(facts.initial.to(model.device), facts)
    return Gaussian(facts.share * (q.precision - precision), facts.share * (q.shift - precision * mean))


def _natural(vector: Tensor, facts: Facts) -> Gaussian:
    """The Gaussian weights of a vector [D], by their natural parameters [P] in float64."""
    assert facts.settings.posterior is not None
    log_variances = vector[facts.layout.log_variances].double().clamp(*facts.settings.posterior.bounds)
    precision = (-log_variances).exp()
    return Gaussian(precision, precision * vector[facts.layout.means].double())
