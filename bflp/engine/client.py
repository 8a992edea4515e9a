"""A client's part of a round: local training from the server's model on the client's own data.

Section 2 of "How to Combine Variational Bayesian Networks in Federated Learning" (arXiv 2206.10897).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bflp.engine.batches import Batches, in_unit_interval
from bflp.engine.cuda_graph import Replay
from bflp.engine.errors import NotFiniteError
from bflp.engine.local import Gaussian, Local, Trained
from bflp.engine.settings import CellSettings
from bflp.networks import Network
from bflp.networks.layout import Layout

NOTHING_ELSE = Local()


def client_update(
    network: Network,
    vector: Tensor,
    inputs: Tensor,
    labels: Tensor,
    settings: CellSettings,
    round_: int,
    client: int,
    replay: Replay | None = None,
    local: Local = NOTHING_ELSE,
) -> Trained:
    """Train for the local epochs.

    vector [D]: the server's model; inputs: images uint8 [n, C, H, W] or features float32 [n, F], and labels [n], on the
    network's device; all randomness follows from (seed, round, client); replay: on a GPU, what records the training
    step; local: what the algorithm changes.

    Loss: mean cross entropy of the batch + KL(posterior || prior) / n. The optimiser is fresh each round: SGD with
    momentum and weight decay, or Adam. Raises NotFiniteError when loss or parameters are not finite.
    """
    training, samples, layout = settings.training, len(labels), network.layout
    batches = Batches(inputs, labels, settings, round_, client, layout.noise_size)
    parameters, gradient = vector.clone(), torch.empty_like(vector)
    projection = settings.posterior.bounds if settings.posterior and settings.posterior.enforce == "project" else None
    log_variances = parameters[layout.log_variances]
    kl_weight, through = 0.0 if local.prior else local.kl_weight / samples, local.through
    further = _corrections(local, layout, parameters, gradient, samples, settings)
    move = optimiser(settings, round_, parameters, gradient)
    total_loss, steps = torch.zeros((), device=vector.device), 0

    def step(inputs: Tensor, labels: Tensor, noise: Tensor | None = None) -> None:
        point = parameters if through is None else through.at(parameters)
        loss = network.gradient(point, inputs, labels, noise, kl_weight, gradient)
        if through is not None:
            through.back(parameters, gradient)
        for correct in further:
            correct()
        if training.clip_norm is not None:
            gradient.mul_((training.clip_norm / (gradient.norm() + 1e-6)).clamp_(max=1.0))
        gradient.add_(parameters, alpha=training.weight_decay)
        move()
        if projection is not None:
            log_variances.clamp_(*projection)
        total_loss.add_(loss)

    run = step if replay is None else replay.of(step)
    averages, moments = [], Moments(parameters) if local.moments_from is not None else None
    for epoch in range(training.local_epochs):
        average = Moments(parameters) if local.averages_from is not None and epoch >= local.averages_from else None
        for batch in batches.epoch():
            run(batch.inputs, batch.labels, *([] if batch.noise is None else [batch.noise]))
            steps += 1
            if local.after_step is not None:
                local.after_step(parameters)
            if average is not None:
                average.add(parameters)
            if moments is not None and epoch >= (local.moments_from or 0):
                moments.add(parameters)
        if average is not None:
            averages.append(average.mean)
    mean_loss = float(total_loss) / steps
    if not math.isfinite(mean_loss) or not bool(torch.isfinite(parameters).all()):
        raise NotFiniteError(f"the loss is {mean_loss} or a parameter is not finite")
    squares = squared_gradients(network, parameters, inputs, labels) if local.squares else None
    iterates = (moments.mean, moments.variance()) if moments else None
    return Trained(parameters, mean_loss, steps, squares, averages, iterates)


class Moments:
    """Mean and variance of vectors that come one after the other (Welford 1962: squares of means would cancel)."""

    def __init__(self, like: Tensor) -> None:
        self.count, self.mean, self.scatter = 0, torch.zeros_like(like), torch.zeros_like(like)

    def add(self, vector: Tensor) -> None:
        """One more vector [D]."""
        self.count += 1
        shift = vector - self.mean
        self.mean.add_(shift, alpha=1 / self.count)
        self.scatter.addcmul_(shift, vector - self.mean)

    def variance(self) -> Tensor:
        """The mean squared deviation [D]."""
        return self.scatter / max(1, self.count)


def squared_gradients(network: Network, vector: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Mean over the samples of the squared gradient of each one's cross entropy [D]: the empirical Fisher's diagonal.

    Sample by sample: squares of batch means would be smaller by about the batch size. Dropout is off. For networks of
    plain numbers.
    """
    total, gradient = torch.zeros_like(vector), torch.empty_like(vector)
    for row in range(len(labels)):
        sample = slice(row, row + 1)
        network.gradient(vector, in_unit_interval(inputs[sample]), labels[sample], None, 0.0, gradient)
        total.addcmul_(gradient, gradient)
    return total.div_(len(labels))


def optimiser(settings: CellSettings, round_: int, parameters: Tensor, gradient: Tensor) -> Callable[[], None]:
    """A fresh one, as the function that moves the parameters by the gradient, in place; it may be recorded as a CUDA
    graph."""
    training, chosen = settings.training, settings.optimiser
    rate, momentum = training.rate(round_), torch.zeros_like(parameters)

    def sgd() -> None:
        momentum.mul_(training.momentum).add_(gradient)
        parameters.add_(momentum, alpha=-rate)

    if chosen["name"] == "sgd":
        return sgd
    (beta1, beta2), epsilon, squares = chosen["betas"], chosen["epsilon"], torch.zeros_like(parameters)
    # What is left of the zeros that the means began with; tensors, so that a recording counts on.
    left = torch.ones(2, dtype=torch.float64, device=parameters.device)
    factors = torch.tensor([beta1, beta2], dtype=torch.float64, device=parameters.device)

    def adam() -> None:
        left.mul_(factors)
        momentum.mul_(beta1).add_(gradient, alpha=1 - beta1)
        squares.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        corrected = 1 - left
        denominator = (squares / corrected[1]).sqrt_().add_(epsilon)
        parameters.sub_((momentum / denominator).mul_(rate / corrected[0]))

    return adam


def _corrections(
    local: Local, layout: Layout, parameters: Tensor, gradient: Tensor, samples: int, settings: CellSettings
) -> list[Callable[[], object]]:
    """What an algorithm adds to the gradient, in place; nothing for FedAvg."""
    found: list[Callable[[], object]] = []
    if local.constant is not None:
        found.append(partial(gradient.add_, local.constant))
    if local.pull is not None:
        assert local.anchor is not None
        anchor, pull = local.anchor, local.pull
        found.append(lambda: gradient.add_((parameters - anchor).mul_(pull)))
    if local.prior is not None:
        found.append(_prior(local.prior, layout, parameters, gradient, local.kl_weight / samples, settings))
    return found


def _prior(
    prior: Gaussian, layout: Layout, parameters: Tensor, gradient: Tensor, weight: float, settings: CellSettings
) -> Callable[[], None]:
    """The gradient of weight * KL(q || prior) up to the prior's normaliser, so that it may be improper:

    d / d mean = precision * mean - shift        d / d log variance = (precision * variance - 1) / 2
    """
    posterior = settings.posterior
    assert posterior is not None
    means, log_variances = parameters[layout.means], parameters[layout.log_variances]
    by_means, by_log_variances = gradient[layout.means], gradient[layout.log_variances]
    low, high = posterior.bounds

    def add() -> None:
        by_means.add_((means * prior.precision).sub_(prior.shift), alpha=weight)
        by_log_variance = log_variances.clamp(low, high).exp_().mul_(prior.precision).sub_(1).mul_(0.5 * weight)
        if posterior.enforce == "clamp":
            by_log_variance.mul_((log_variances > low) & (log_variances < high))
        by_log_variances.add_(by_log_variance)

    return add
