"""IVON, improved variational online Newton: Adam-like steps on means, with a Hessian that gives the variances.

With ess = n_k / (temperature * weight of the divergence), delta = prior precision / ess and the prior's mean m0, per
weight and step:

    theta = m + eps / sqrt(ess (h + delta)),        g = gradient of the mean loss at theta
    h^ = ess (h + delta) (theta - m) g              (+ what an algorithm adds to the curvature)
    a <- beta1 a + (1 - beta1) g
    h <- beta2 h + (1 - beta2) h^ + (1 - beta2)^2 (h - h^)^2 / (2 (h + delta))
    m <- m - rate (a / (1 - beta1^t) + delta (m - m0)) / (h + delta)

and the posterior is N(m, 1 / (ess (h + delta))). With `rescale` the rate is multiplied by h0 + delta. h starts at h0 in
the first round, and later where the server's variance puts it (`carry`), or at h0 in each.

Shen et al. (2024), "Variational learning is effective for large deep networks" (arXiv 2402.17641), algorithm 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bflp.engine.batches import Batches
from bflp.engine.cuda_graph import Replay
from bflp.engine.errors import NotFiniteError
from bflp.engine.local import Gaussian, Local, Trained
from bflp.engine.settings import CellSettings
from bflp.networks import Network
from bflp.rng import torch_generator


def train(
    network: Network,
    means: Tensor,
    log_variances: Tensor,
    inputs: Tensor,
    labels: Tensor,
    settings: CellSettings,
    round_: int,
    client: int,
    replay: Replay | None,
    local: Local,
) -> Trained:
    """means, log_variances [P]: the server's; network: of plain numbers. The vector [2 P] holds both.

    An algorithm's pull counts as a part of the loss; its curvature C and constant c are added to h^ and as C m + c to
    the step's numerator. Weight decay and momentum of `training` take no part: delta and beta1 stand for them. Steps
    are never recorded, since the rate changes from step to step. Raises NotFiniteError when loss or parameters are not
    finite.
    """
    training, posterior, chosen = settings.training, settings.posterior, settings.optimiser
    assert posterior is not None
    device, samples = means.device, len(labels)
    ess = samples / (chosen["temperature"] * local.kl_weight)
    beta1, beta2 = chosen["betas"]
    delta, pull = (part / ess for part in local.prior or Gaussian.prior(posterior, means))
    initial = chosen["initial_hessian"]
    if round_ > 1 and chosen["carry"]:
        hessian = torch.exp(-log_variances) / ess - delta
    else:
        hessian = torch.full_like(means, initial)
    rate = training.rate(round_) * (initial + delta if chosen["rescale"] else 1.0)
    batches = Batches(inputs, labels, settings, round_, client, network.layout.noise_size)
    generator = torch_generator(settings.seed, "weight noise", round_, client, device=str(device))
    mean, average = means.clone(), torch.zeros_like(means)
    gradient, noise = torch.empty_like(means), torch.empty_like(means)
    total_loss, steps = torch.zeros((), device=device), 0
    for _ in range(training.local_epochs):
        for batch in batches.epoch():
            steps += 1
            curvature = hessian + delta
            deviation = noise.normal_(generator=generator).mul_((ess * curvature).rsqrt())
            theta = mean + deviation
            loss = network.gradient(theta, batch.inputs, batch.labels, batch.noise, 0.0, gradient)
            if local.pull is not None and local.anchor is not None:
                gradient.add_((theta - local.anchor).mul_(local.pull))
            if training.clip_norm is not None:
                gradient.mul_((training.clip_norm / (gradient.norm() + 1e-6)).clamp_(max=1.0))
            estimate = ess * curvature * deviation * gradient
            if local.curvature is not None:
                estimate.add_(local.curvature)
            average.mul_(beta1).add_(gradient, alpha=1 - beta1)
            error = hessian - estimate
            hessian = beta2 * hessian + (1 - beta2) * estimate + (1 - beta2) ** 2 * error.square() / (2 * curvature)
            direction = average / (1 - beta1**steps) + delta * mean - pull
            if local.constant is not None:
                direction.add_(local.constant)
            if local.curvature is not None:
                direction.addcmul_(local.curvature, mean)
            mean = mean - rate * direction / (hessian + delta)
            total_loss.add_(loss)
    mean_loss = float(total_loss) / steps
    vector = torch.cat([mean, -(ess * (hessian + delta)).log()])
    if not math.isfinite(mean_loss) or not bool(torch.isfinite(vector).all()):
        raise NotFiniteError(f"the loss is {mean_loss} or a parameter is not finite")
    return Trained(vector, mean_loss, steps)
