"""FedPA, federated posterior averaging: clients send a step towards the mode of the product of their posteriors.

After `burn_in` local epochs each further one gives a sample s_t, the mean of its iterates. With l samples, their mean s
and their unbiased covariance S, shrunk as

    C = r I + (1 - r) S,    r = 1 / (1 + (l - 1) rho)

client k sends D_k = C^-1 (x - s), by a recursion in O(l^2 D). The server takes a step of SGD with momentum:

    v <- momentum v + sum_k beta_k D_k        x <- x - rate v

The fixed point solves sum_k beta_k C_k^-1 (x - s_k) = 0: with the true covariances it minimises sum_k beta_k l_k, with
rho = 0 it is FedAvg of the sample means. The scale of S is that of SGD's noise, so this is a point estimate. Before
round `start` D_k = x - y_k, with the final parameters y_k, is FedAvg's.

Any participation, no state of clients; the server keeps v. Al-Shedivat et al. (2021), "Federated Learning via Posterior
Averaging" (arXiv 2010.05273), algorithms 3 and 4; defaults of their EMNIST-62 run, whose `start` was 400 of 1500
rounds, with a client's learning rate 0.02 and momentum 0.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, Lt

from bflp.engine.local import Facts, Local, Report, State, Trained

if TYPE_CHECKING:
    from torch import Tensor

    from bflp.engine.settings import Training

KINDS = ("none",)
BROADCAST = ()
SENDS_PARAMETERS = False


@dataclass(frozen=True)
class Settings:
    """Of FedPA."""

    burn_in: Annotated[int, Ge(0)] = 1
    """Local epochs before the first sample; at least one must follow."""
    shrinkage: Annotated[float, Ge(0)] = 0.01
    """rho: 0 takes the identity for the covariance, large values the samples'."""
    server_learning_rate: Annotated[float, Gt(0)] = 0.5
    """The server's."""
    server_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """The server's."""
    start: Annotated[int, Ge(1)] = 1
    """The first round that samples; FedAvg's steps before it."""


def refuse(settings: Settings, training: Training) -> str:
    """Why no epoch is left to sample from, or nothing."""
    if settings.burn_in < training.local_epochs:
        return ""
    return f"burn_in is {settings.burn_in}, but must be below the number of local epochs, {training.local_epochs}"


def local(model: Tensor, server: State, client: State, facts: Facts, settings: Settings) -> Local:
    """Collects the epochs' means."""
    return Local(averages_from=settings.burn_in if facts.round >= settings.start else None)


def report(
    model: Tensor, trained: Trained, server: State, client: State, facts: Facts, settings: Settings
) -> tuple[State, State]:
    """D_k, in the place of the parameters; nothing is kept."""
    samples = trained.averages or [trained.vector]
    return {"step": preconditioned(model.double(), [each.double() for each in samples], settings.shrinkage)}, {}


def server(
    model: Tensor, reports: Sequence[Report], server: State, facts: Facts, settings: Settings
) -> tuple[Tensor, State]:
    """SGD with momentum."""
    before = settings.server_momentum * server["velocity"] if server else 0 * model.double()
    velocity = sum((each.weight * each.message["step"] for each in reports), before)
    return model.double() - settings.server_learning_rate * velocity, {"velocity": velocity}


def preconditioned(model: Tensor, samples: Sequence[Tensor], rho: float) -> Tensor:
    """C^-1 (model - mean of the samples) [D], by rank-one updates, sample after sample."""
    mean, step = samples[0], model - samples[0]
    before: list[tuple[Tensor, Tensor]] = []  # v_j and u_j v_j, from the second sample on
    for t, sample in enumerate(samples[1:], start=2):
        u = v = sample - mean
        for j, (v_j, product_j) in enumerate(before, start=2):
            g = rho * (j - 1) / j
            v = v - g * (v_j @ u) / (1 + g * product_j) * v_j
        g, product = rho * (t - 1) / t, u @ v
        step = step - (1 + g * (t * (u @ step) - product) / (1 + g * product)) / t * v
        before.append((v, product))
        mean = mean + u / t
    return step * (1 + (len(samples) - 1) * rho)
