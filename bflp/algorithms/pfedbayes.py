"""pFedBayes: each client has a posterior of its own, with the global model as its prior, which follows the posteriors.

Client k keeps q_k, which is the received model before its first round, and takes w_k, a copy of the received Gaussians.
It trains the two in turns, by an optimiser each: `steps` steps of q_k, each on its own batch, then one of w_k, on

    E_q_k[l_k] + (zeta / n_k) KL(q_k || w_k)    in q_k        (zeta / n_k) KL(q_k || w_k)    in w_k

with l_k the mean loss, and per weight, with q_k = N(mu, s) and w_k = N(m, v),

    d KL / d m = (m - mu) / v        d KL / d log v = (1 - (s + (m - mu)^2) / v) / 2

It sends w_k, and the aggregation rule, AALV unless another is named, makes the global model of them. Tensors without a
posterior are trained with q_k from what was received, sent and averaged as in FedAvg. Log variances are used within
their bounds, for w_k as for any posterior.

For given w_k a client's optimum is w_k * likelihood^(1 / zeta): zeta = 10 tempers the data by 10. For a small rate of
w_k the global model rests where sum over k of beta_k d KL(q_k || w) = 0: its mean is that of the q_k, its variance the
mean of theirs and of their means' squared distances. It is the global model, the prior, that is evaluated; the q_k are
the local models of the evaluator `personal`.

Clients keep q_k; optimisers start afresh in each round, where the published program keeps their moments. There a batch
serves for all `steps` steps, and standard deviations are softplus(rho), with rho averaged. A client that takes fewer
than `steps` steps in a round sends the Gaussians that it received. Any participation. Zhang et al. (2022),
"Personalized Federated Learning via Variational Bayesian Inference" (arXiv 2206.07977); defaults of
github.com/AllenBeau/pFedBayes, with Adam for both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt

from bflp.engine.local import Facts, Gaussian, Local, State, Trained

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("variational",)
DEFAULT_AGGREGATORS = ("AALV",)


@dataclass(frozen=True)
class Settings:
    """Of pFedBayes."""

    zeta: Annotated[float, Gt(0)] = 10.0
    """Weight of the divergence from the global model."""
    steps: Annotated[int, Gt(0)] = 5
    """Of the client's own posterior for each one of its copy of the global model."""
    learning_rate: Annotated[float, Gt(0)] = 0.001
    """Of the copy, which has no weight decay or clipping; the rest of its optimiser is that of the client's own."""


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """Training of q_k, and of w_k after every `steps` steps."""
    # Not above: settings are read without torch.
    from bflp.engine.client import optimiser

    layout, posterior, weight = facts.layout, facts.settings.posterior, settings.zeta / facts.samples
    assert posterior is not None
    low, high = posterior.bounds
    copy, gradient = model.clone(), model.new_zeros(model.shape)
    means, log_variances = copy[layout.means], copy[layout.log_variances]
    training = replace(facts.training, learning_rate=settings.learning_rate)
    move = optimiser(replace(facts.settings, training=training), facts.round, copy, gradient)
    prior, taken = _natural(means, log_variances.clamp(low, high)), count(1)

    def after_step(parameters: Tensor) -> None:
        copy[layout.deterministic] = parameters[layout.deterministic]
        if next(taken) % settings.steps:
            return
        distance = means - parameters[layout.means]
        variance = parameters[layout.log_variances].clamp(low, high).exp()
        gradient[layout.means] = weight * prior.precision * distance
        by_log_variance = weight / 2 * (1 - prior.precision * (variance + distance.square()))
        if posterior.enforce == "clamp":
            by_log_variance *= (log_variances > low) & (log_variances < high)
        gradient[layout.log_variances] = by_log_variance
        move()
        if posterior.enforce == "project":
            log_variances.clamp_(low, high)
        for old, new in zip(prior, _natural(means, log_variances.clamp(low, high)), strict=True):
            old.copy_(new)

    start = model.clone()
    if client:
        start[layout.means], start[layout.log_variances] = client["means"], client["log_variances"]
    return Local(prior=prior, kl_weight=settings.zeta, start=start, after_step=after_step, sent=copy)


def report(
    model: Tensor, trained: Trained, server: State, client: State, facts: Facts, settings: Settings
) -> tuple[State, State]:
    """Nothing beside w_k; q_k."""
    own, layout = trained.vector, facts.layout
    return {}, {"means": own[layout.means], "log_variances": own[layout.log_variances]}


def _natural(means: Tensor, log_variances: Tensor) -> Gaussian:
    """By natural parameters [P]."""
    precision = (-log_variances).exp()
    return Gaussian(precision, precision * means)
