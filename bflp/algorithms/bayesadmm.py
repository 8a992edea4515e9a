"""BayesADMM: the alternating direction method of multipliers over Gaussian posteriors, with IVON in the clients.

The target is ~ N(m0, 1/S0) prod_k likelihood_k^(1/tau), with the temperature tau of the optimiser and the prior's S0.
With duals v_k, V_k, 0 at first, and the server's N(m_g, 1/S_g), at first the prior, client k minimises

    (n_k / tau) E_q[l_k] - v_k E_q[w] + V_k E_q[w^2] / 2 + rho KL(q || N(m_g, 1/S_g))        l_k: mean loss

and updates its duals by its posterior N(m_k, 1/S_k):

    v_k <- v_k + damping rho (S_g m_g - S_k m_k)        V_k <- V_k + damping rho (S_g - S_k)

The server, with a = 1 / (1 + N rho), means over all N clients and sums of the new duals:

    S_g <- (1 - a) mean_k S_k + a (S0 - sum_k V_k)        S_g m_g <- (1 - a) mean_k S_k m_k + a (S0 m0 - sum_k v_k)

The fixed point is that of variational inference for the target, whatever the weights; -V_k and -v_k become the
client's factor of it. IVON does each client's step with ess = n_k / (tau rho), and begins at m_g with the Hessian that
S_g says, in the first round at the network's initial parameters and `initial_hessian`.

Differences from the authors' program: there all clients take part; here the parameters and duals of absent ones stay
(at first those of the prior), with the same formulas. There IVON's momentum lives on from round to round; here it
starts afresh. The published runs use IVON without `rescale`.

Clients keep their duals and posterior; the server the sums of these. Where V_k + rho S_g < 0 a client's problem has no
minimum: a small damping avoids it. Möllenhoff et al. (2025), "Federated ADMM from Bayesian Duality" (arXiv
2506.13150), with the defaults of its CIFAR-10 run, where tau is 0.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt, Le

from bflp.engine.local import Facts, Gaussian, Local, Report, State, Trained

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("ivon",)
SENDS_PARAMETERS = False


@dataclass(frozen=True)
class Settings:
    """Of BayesADMM."""

    rho: Annotated[float, Gt(0)] = 1.0
    """Weight of the divergence from the server's posterior."""
    damping: Annotated[float, Gt(0), Le(1)] = 0.1
    """Share of the duals' full step."""


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """The server's posterior as prior, and the duals on the scale of the mean loss."""
    q = _server(model, server, facts, settings)
    prior = Gaussian(q.precision.to(model.dtype), q.shift.to(model.dtype))
    if not client:
        return Local(prior=prior, kl_weight=settings.rho)
    scale = facts.settings.optimiser["temperature"] / facts.samples
    curvature = (scale * client["dual_precision"]).to(model.dtype)
    constant = (-scale * client["dual_shift"]).to(model.dtype)
    return Local(prior=prior, kl_weight=settings.rho, constant=constant, curvature=curvature)


def report(
    model: Tensor, trained: Trained, server: State, client: State, facts: Facts, settings: Settings
) -> tuple[State, State]:
    """The changes of duals and posterior; their new values."""
    q, layout, before = _server(model, server, facts, settings), facts.layout, client or _first(model, facts)
    precision = (-trained.vector[layout.log_variances].double()).exp()
    shift, step = precision * trained.vector[layout.means].double(), settings.damping * settings.rho
    after = {
        "dual_precision": before["dual_precision"] + step * (q.precision - precision),
        "dual_shift": before["dual_shift"] + step * (q.shift - shift),
        "precision": precision,
        "shift": shift,
    }
    return {name: after[name] - before[name] for name in after}, after


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """The new sums over all clients, and the posterior that follows."""
    before = server or {name: facts.clients * value for name, value in _first(model, facts).items()}
    sums = {name: value + sum(each.message[name] for each in reports) for name, value in before.items()}
    q, new = _server(model, sums, facts, settings), model.double().clone()
    new[facts.layout.means], new[facts.layout.log_variances] = q.shift / q.precision, -q.precision.log()
    return new, sums


def _first(model: Tensor, facts: Facts) -> State:
    """What a client has before it has trained: no duals, and the prior."""
    zero = model[facts.layout.means].double() * 0
    mean, precision = facts.prior
    return {"dual_precision": zero, "dual_shift": zero, "precision": zero + precision, "shift": zero + precision * mean}


def _server(model: Tensor, sums: State, facts: Facts, settings: Settings) -> Gaussian:
    """N(m_g, 1/S_g) from the sums over all clients."""
    prior = _first(model, facts)
    if not sums:
        return Gaussian(prior["precision"], prior["shift"])
    a = 1 / (1 + facts.clients * settings.rho)
    of_clients, of_duals = (1 - a) / facts.clients, a
    return Gaussian(
        of_clients * sums["precision"] + of_duals * (prior["precision"] - sums["dual_precision"]),
        of_clients * sums["shift"] + of_duals * (prior["shift"] - sums["dual_shift"]),
    )
