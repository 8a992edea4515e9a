"""FedSparse: clients learn a gate with each weight, and weights whose gates are mostly shut are pruned.

Spike and slab: for weight j and client k, z ~ Bernoulli(theta_j); where z = 1 the client's weight phi is
N(w_j, 1 / lambda), where z = 0 it is 0; the data depend on phi * z. Hard EM lowers, in turns, the sum over clients of

    n_k E_z[l_k(phi_k * z)] + c_k sum_j [ lambda / 2 pi_k (phi_k - w)^2 + lambda_0 pi_k
                                          - pi_k log theta - (1 - pi_k) log(1 - theta) ]

with l_k the mean loss. Client k takes steps in phi_k and in the gates' probabilities pi_k, from phi_k = w and
pi_k = theta; for the server's w and theta the minimum is

    w = sum_k beta_k pi_k phi_k / sum_k beta_k pi_k        theta = sum_k beta_k pi_k

In training a gate is relaxed to a hard concrete variable with the logit a, drawn once for each step:

    z = min(1, max(0, (ZETA - GAMMA) s + GAMMA)),    s = sigmoid((log u - log(1 - u) + a) / BETA),    u uniform
    pi = P(z > 0) = sigmoid(a - BETA log(-GAMMA / ZETA))

A client sends phi_k where its gate, drawn from pi_k, is open, and nothing elsewhere: the server's sums are over these,
which are right on average, but few. So theta goes only the share `rate` of its way, and w stays where no gate was open.
Where theta is below `threshold`, the weight is 0 from then on. The model is w E[z] of gates with the probability theta.

c_k = temperature N p_k: 1 for `weights: equal` and temperature 1, which is the model as it stands; with `weights: data`
clients count by data in the server's sums, too. The entropy of gates is left out, as for other variables in hard EM.
Without gates (pi = 1) it is FedProx with mu = lambda c_k / n_k.
Weight decay and clipping are for phi alone. Any participation; clients keep nothing, the server keeps theta.

Louizos et al. (2021), "An Expectation-Maximization Perspective on Federated Learning" (arXiv 2111.10192); for a spike
of precision lambda_2, lambda_0 is log(lambda_2 / lambda) / 2. Gates: Louizos, Welling and Kingma (2018), "Learning
Sparse Neural Networks through L0 Regularization" (arXiv 1712.01312), section 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from bflp.algorithms._steps import mean, total
from bflp.engine.local import Facts, Local, Report, State, Through

if TYPE_CHECKING:
    from torch import Tensor

    from bflp.engine.settings import Training

KINDS = ("none",)
TRAINS_MODELS = False
SPARSE = True
BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1  # of the hard concrete distribution, as its authors have them
SHIFT = -BETA * math.log(-GAMMA / ZETA)  # from a gate's logit to that of its probability
MOST = 0.99  # of theta: gates that are open for sure would stay so
SHUT = -1e4  # logit of a pruned gate
NODES = 16  # of the quadrature for E[z]


@dataclass(frozen=True)
class Settings:
    """Of FedSparse. The authors tune lambda and lambda_0; the defaults here keep most gates open."""

    precision: Annotated[float, Ge(0)] = 1.0
    """lambda: how strongly weights with an open gate are pulled to the server's."""
    penalty: float = 1.0
    """lambda_0: what an open gate costs, in nats."""
    temperature: Annotated[float, Ge(0)] = 1.0
    """Of all but the loss of the data: below 1 data count for more than by Bayes' rule."""
    initial: Annotated[float, Gt(0), Lt(1)] = 0.9
    """theta of all gates before the first round."""
    threshold: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Of theta, below which weights are pruned."""
    learning_rate: Annotated[float, Gt(0)] = 0.1
    """Of the gates' logits. The rest of their optimiser is that of the weights."""
    rate: Annotated[float, Gt(0), Le(1)] = 0.5
    """How far theta goes towards what the clients of a round say; 1 is all the way."""


def refuse(settings: Settings, training: Training) -> str:
    """Why all weights would be pruned at once, or nothing."""
    if settings.threshold <= settings.initial:
        return ""
    return f"initial is {settings.initial}, but must not be below threshold, {settings.threshold}"


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """Training of phi at phi * z, and of the gates along with it."""
    # Not above: settings are read without torch.
    import torch

    from bflp.engine.client import optimiser
    from bflp.rng import torch_generator

    theta = _theta(model, server, settings)
    w, odds = _weights(model, theta), theta.logit(eps=1 - MOST).to(model.dtype)
    logits = logit(theta).clamp(min=SHUT).to(model.dtype)
    scale = settings.temperature * facts.clients * facts.share / facts.samples
    gate, slope, probability, pull, sent, gradient, uniform = (torch.zeros_like(model) for _ in range(7))
    training = replace(facts.training, learning_rate=settings.learning_rate)
    move = optimiser(replace(facts.settings, training=training), facts.round, logits, gradient)
    client_number, device = facts.client or 0, str(model.device)
    generator = torch_generator(facts.settings.seed, "weight noise", facts.round, client_number, device)

    def draw() -> None:
        for to, from_ in zip((gate, slope), hard_concrete(logits, uniform.uniform_(generator=generator)), strict=True):
            to.copy_(from_)
        probability.copy_((logits + SHIFT).sigmoid())
        pull.copy_(scale * settings.precision * probability)

    def back(parameters: Tensor, by_point: Tensor) -> None:
        cost = settings.precision / 2 * (parameters - w).square() + settings.penalty - odds
        gradient.copy_(by_point * parameters * slope + scale * cost * probability * (1 - probability))
        by_point.mul_(gate)

    def after_step(parameters: Tensor) -> None:
        move()
        draw()
        sent.copy_(parameters * (gate > 0))

    draw()
    through = Through(lambda parameters: parameters * gate, back)
    return Local(start=w, pull=pull, anchor=w, through=through, after_step=after_step, sent=sent)


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """The minimum for w, a step towards it for theta."""
    theta = _theta(model, server, settings)
    opened = total(each.weight * (each.vector != 0).double() for each in reports)
    w = (mean(reports) / opened).where(opened > 0, _weights(model.double(), theta))
    theta = (theta + settings.rate * (opened - theta)).clamp(max=MOST)
    theta = theta.where(theta >= settings.threshold, 0.0)
    return w * expected_gate(theta), {"theta": theta}


def logit(probability: Tensor) -> Tensor:
    """The gate's logit a for P(z > 0)."""
    return probability.logit() - SHIFT


def hard_concrete(logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Gates z for numbers that are uniform on [0, 1), and their derivatives by the logits."""
    s = ((uniform.log() - (-uniform).log1p() + logits) / BETA).sigmoid()
    stretched = (ZETA - GAMMA) * s + GAMMA
    gate = stretched.clamp(0, 1)
    return gate, (ZETA - GAMMA) / BETA * s * (1 - s) * (gate == stretched)


def expected_gate(probability: Tensor) -> Tensor:
    """E[z] for P(z > 0), the integral of P(z > t) over t from 0 to 1; 0 where P(z > 0) is 0."""
    logits, expected = logit(probability), 0 * probability
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        expected += float(weight) * (logits - BETA * math.log((t - GAMMA) / (ZETA - t))).sigmoid()
    return expected


def _theta(model: Tensor, server: State, settings: Settings) -> Tensor:
    """Before the round, in float64."""
    return server["theta"] if server else model.double().new_full(model.shape, settings.initial)


def _weights(model: Tensor, theta: Tensor) -> Tensor:
    """w before the round: the model is w E[z]."""
    return (model / expected_gate(theta).to(model.dtype)).where(theta > 0, 0.0)
