"""A client's part of a round: local training from the server's model on the client's own data.

Section 2 of "How to Combine Variational Bayesian Networks in Federated Learning" (arXiv 2206.10897).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bflp.engine.cuda_graph import Replay
from bflp.errors import UserError
from bflp.networks.lenet import Network
from bflp.rng import torch_generator


class NotFiniteError(UserError):
    """A client's loss or parameters are no finite numbers any more."""


def client_update(
    network: Network,
    vector: Tensor,
    images: Tensor,
    labels: Tensor,
    settings: Mapping[str, Any],
    address: tuple[int, int, int],
    replay: Replay | None = None,
) -> tuple[Tensor, float]:
    """Train for the local epochs; return the client's parameters [D] and its mean loss.

    vector [D]: the server's model; images [n, C, H, W] in [0, 1] and labels [n], on the network's device; settings:
    a cell's settings; address: (seed, round, client), from which all randomness follows; replay: on a GPU, what records
    the training step.

    Loss: mean cross entropy of the batch + KL(posterior || prior) / n. Optimiser: SGD with momentum and weight
    decay, fresh each round. Raises NotFiniteError when loss or parameters are not finite.
    """
    training, samples = settings["training"], len(labels)
    device = str(vector.device)
    order_generator = torch_generator(address[0], "shuffling", *address[1:])
    noise_generator = torch_generator(address[0], "training noise", *address[1:], device=device)
    prepare_batch = _augmentation(settings, address)
    parameters, gradient, momentum = vector.clone(), torch.empty_like(vector), torch.zeros_like(vector)
    log_variances = parameters[network.layout.log_variances]
    posterior = settings.get("posterior", {}).get("log_variance", {})
    # Filled anew in each step or epoch: fresh memory of this size costs page faults every time.
    batch_images = torch.empty((min(training["batch_size"], samples), *images.shape[1:]), device=device)
    noise = torch.empty((samples, network.layout.units), device=device) if network.layout.units else None
    total_loss, steps = torch.zeros((), device=device), 0

    def step(images: Tensor, labels: Tensor, noise: Tensor | None = None) -> None:
        loss = network.gradient(parameters, images, labels, noise, 1.0 / samples, gradient)
        gradient.add_(parameters, alpha=training["weight_decay"])
        momentum.mul_(training["momentum"]).add_(gradient)
        parameters.add_(momentum, alpha=-training["learning_rate"])
        if posterior.get("enforce") == "project":
            log_variances.clamp_(*posterior["bounds"])
        total_loss.add_(loss)

    run = step if replay is None else replay.of(step)
    for _ in range(training["local_epochs"]):
        order = torch.randperm(samples, generator=order_generator).to(device)
        if noise is not None:
            # One draw per epoch: row i is for the i-th sample of the shuffled order.
            noise.normal_(generator=noise_generator)
        for start in range(0, samples, training["batch_size"]):
            chosen = order[start : start + training["batch_size"]]
            batch = torch.index_select(images, 0, chosen, out=batch_images[: len(chosen)])
            batch_noise = [] if noise is None else [noise[start : start + len(chosen)]]
            run(prepare_batch(batch), labels[chosen], *batch_noise)
            steps += 1
    mean_loss = float(total_loss) / steps
    if not math.isfinite(mean_loss) or not bool(torch.isfinite(parameters).all()):
        raise NotFiniteError(f"the loss is {mean_loss} or a parameter is not finite")
    return parameters, mean_loss


def _augmentation(settings: Mapping[str, Any], address: tuple[int, int, int]) -> Any:
    """The function from a batch of images to what is trained on."""
    if not settings["augment"]:
        return lambda images: images
    # Not by an import statement: a change of that module then concerns only the cells that augment.
    augment = importlib.import_module("bflp.engine.augment").augment
    generator = torch_generator(address[0], "augmentation", *address[1:])
    return lambda images: augment(images, **settings["augment"], generator=generator)
