"""A stack: several clients of a round that train at once, each step in as many operations as that of one client.

Each client keeps its parameters and momentum, and its order, noise and augmentation from its own addresses. Where a
batch is smaller than the others, the rest of it has no share in the loss; a client that has done its steps of an epoch
stands still until the others have, momentum and weight decay included. Rounding apart each client gets what it gets
alone (bflp.engine.client). How sums are rounded may depend on the stack, so it is a setting of the cell.

On a GPU one step is recorded for all clients and rounds of the cell: whatever changes lies in tensors that stay where
they are, the number of the step included.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bflp.engine.batches import MOST_PER_EPOCH, in_unit_interval
from bflp.engine.cuda_graph import Replay
from bflp.engine.errors import DivergedError
from bflp.engine.inputs import Inputs
from bflp.engine.local import Trained
from bflp.engine.settings import CellSettings
from bflp.networks.lenet import LeNet
from bflp.networks.stacked_lenet import StackedLeNet
from bflp.rng import torch_generator


class Stack:
    """Trains up to K clients (`width`) at once by SGD; its buffers serve all rounds of a cell.

    Samples of all clients lie one client after the other: N is room for the largest K clients.
    """

    def __init__(
        self, network: LeNet, settings: CellSettings, data: Inputs, width: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self.settings, self.data, self.layout = settings, data, network.layout
        self.batch = min(settings.training.batch_size, int(data.sizes.max()))
        room, device = int(np.sort(data.sizes)[-width:].sum()), network.device
        like = torch.empty(0, dtype=dtype, device=device)
        self.network = StackedLeNet(network, width, self.batch, like)
        integers = like.new_empty(0, dtype=torch.int64)
        example = torch.from_numpy(np.array(data.train_inputs[:1]))
        self.inputs = torch.zeros((room, *example.shape[1:]), dtype=example.dtype, device=device)
        self.labels, self.order = integers.new_zeros(room), integers.new_zeros(room)  # order: rows of inputs
        noise_size = self.layout.noise_size
        self.noise = torch.zeros((room, noise_size), device=device) if noise_size else None
        # Not by an import statement, as in bflp.engine.batches.
        self.augment = importlib.import_module("bflp.engine.augment") if settings.augment else None
        self.drawn = integers.new_zeros(room if self.augment else 0, 3)
        self.first, self.sizes = integers.new_zeros(width, 1), integers.new_zeros(width, 1)
        self.positions, self.done = torch.arange(self.batch, device=device), integers.new_zeros(())
        self.rate, self.losses, self.kl_weights = like.new_zeros(()), like.new_zeros(width), like.new_zeros(width, 1)
        self.parameters, self.momentum, self.gradient = like.new_zeros(3, width, self.layout.size)
        self.run = self.step if device.type == "cpu" else Replay().once(self.step)

    def train(self, vector: Tensor, round_: int, clients: Sequence[int]) -> list[Trained]:
        """The local epochs of some clients, from the server's model [D]. Raises DivergedError."""
        training, sizes = self.settings.training, self.data.sizes[list(clients)]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        self._load(clients, sizes, starts)
        self.parameters.copy_(vector)
        self.momentum.zero_()
        self.losses.zero_()
        self.rate.fill_(training.rate(round_))
        draws = [
            _Draws(self.settings, round_, client, slice(start, stop), str(vector.device))
            for client, start, stop in zip(clients, starts.tolist(), starts[1:].tolist(), strict=False)
        ]
        for _ in range(training.local_epochs):
            self._draw(draws)
            self.done.zero_()
            for _ in range(-(-int(sizes.max()) // self.batch)):
                self.run()
        steps = training.local_epochs * -(-sizes // self.batch)
        finite = torch.isfinite(self.parameters).all(dim=1).tolist()
        found = [
            Trained(vector, loss / int(count), int(count))
            for vector, loss, count in zip(self.parameters.clone(), self.losses.tolist(), steps, strict=False)
        ]
        for client, trained, is_finite in zip(clients, found, finite, strict=False):
            if not math.isfinite(trained.loss) or not is_finite:
                raise DivergedError(round_, client, f"the loss is {trained.loss} or a parameter is not finite")
        return found

    def step(self) -> None:
        """One step of all clients that have one left in this epoch."""
        training = self.settings.training
        at = self.done * self.batch + self.positions
        counts = at < self.sizes  # [K, B]
        places = self.first + torch.minimum(at, (self.sizes - 1).clamp_(min=0))
        flat = places.flatten()
        rows, shape = self.order[flat], places.shape
        images = in_unit_interval(self.inputs.index_select(0, rows))
        if self.augment is not None and self.settings.augment is not None:
            images = self.augment.moved(images, self.drawn[flat], self.settings.augment["crop_padding"])
        noise = None if self.noise is None else self.noise.index_select(0, flat).unflatten(0, shape)
        shares = counts.to(self.gradient.dtype)
        shares.div_(shares.sum(dim=1, keepdim=True).clamp_(min=1))
        batch = images.unflatten(0, shape), self.labels[rows].unflatten(0, shape), noise
        gradient, momentum, parameters = self.gradient, self.momentum, self.parameters
        losses = self.network.gradient(parameters, *batch, self.kl_weights, shares, gradient)
        if training.clip_norm is not None:
            gradient.mul_((training.clip_norm / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp_(max=1.0))
        gradient.add_(parameters, alpha=training.weight_decay)
        moves = counts[:, :1]
        momentum.copy_(torch.where(moves, momentum * training.momentum + gradient, momentum))
        parameters.copy_(torch.where(moves, parameters - self.rate * momentum, parameters))
        posterior = self.settings.posterior
        if posterior and posterior.enforce == "project":
            parameters[:, self.layout.log_variances].clamp_(*posterior.bounds)
        self.losses.add_(losses.where(moves.squeeze(1), 0.0))
        self.done.add_(1)

    def _load(self, clients: Sequence[int], sizes: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
        """The clients' data; the rest of the stack has no samples."""
        data = self.data
        indices = np.concatenate([data.indices[data.offsets[client] : data.offsets[client + 1]] for client in clients])
        self.inputs[: len(indices)].copy_(torch.from_numpy(np.array(data.train_inputs[indices])))
        self.labels[: len(indices)].copy_(torch.from_numpy(data.train_labels[indices]))
        used = len(clients)
        for buffer, values in ((self.sizes, sizes), (self.first, starts[:-1]), (self.kl_weights, 1.0 / sizes)):
            buffer.zero_()[:used, 0].copy_(torch.from_numpy(values))

    def _draw(self, draws: Sequence[_Draws]) -> None:
        """Order, noise and augmentation of the next epoch."""
        self.order[: draws[-1].samples.stop].copy_(torch.cat([each.order() for each in draws]))
        if self.noise is not None:
            for each in draws:
                each.fill_noise(self.noise[each.samples])
        if self.augment is not None:
            self.drawn[: draws[-1].samples.stop].copy_(torch.cat([each.augmentation(self.augment) for each in draws]))


class _Draws:
    """What is drawn for a client in a round, as bflp.engine.batches draws it for one that trains alone.

    samples: where they lie in the stack's buffers.
    """

    def __init__(self, settings: CellSettings, round_: int, client: int, samples: slice, device: str) -> None:
        self.samples, self.count = samples, samples.stop - samples.start
        self.batch, self.augment = min(settings.training.batch_size, self.count), settings.augment
        self.shuffling = torch_generator(settings.seed, "shuffling", round_, client)
        self.noises = torch_generator(settings.seed, "training noise", round_, client, device=device)
        self.moves = torch_generator(settings.seed, "augmentation", round_, client)

    def order(self) -> Tensor:
        """Its samples in the order of the next epoch."""
        return torch.randperm(self.count, generator=self.shuffling).add_(self.samples.start)

    def fill_noise(self, noise: Tensor) -> None:
        """noise [n, noise_size]: row i is for the i-th sample of the order; one draw, or one per batch."""
        for part in noise.split(self.count if noise.shape[1] <= MOST_PER_EPOCH else self.batch):
            part.normal_(generator=self.noises)

    def augmentation(self, module: Any) -> Tensor:
        """How each sample of the order is moved, [n, 3]."""
        sizes = [min(self.batch, self.count - start) for start in range(0, self.count, self.batch)]
        return torch.cat([module.draw(size, **self.augment or {}, generator=self.moves) for size in sizes])
