"""The batches of a client's local training: order, augmentation and noise follow from (seed, round, client)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bflp.engine.settings import CellSettings
from bflp.rng import torch_generator

# Noise is drawn once per epoch, which is quicker, unless a sample needs more numbers than this.
MOST_PER_EPOCH = 1000


class Batch(NamedTuple):
    """inputs float32 [B, ...], labels [B], noise [B, noise_size] or None."""

    inputs: Tensor
    labels: Tensor
    noise: Tensor | None


class Batches:
    """A client's samples, shuffled in each epoch, in batches of which the last may be smaller.

    inputs: images uint8 [n, C, H, W] or features float32 [n, F]; labels [n], on one device; noise_size: standard normal
    numbers per sample.
    """

    def __init__(
        self, inputs: Tensor, labels: Tensor, settings: CellSettings, round_: int, client: int, noise_size: int
    ) -> None:
        address, device = (round_, client), str(inputs.device)
        self.inputs, self.labels, self.noise_size = inputs, labels, noise_size
        self.size = min(settings.training.batch_size, len(labels))
        self.order_generator = torch_generator(settings.seed, "shuffling", *address)
        self.noise_generator = torch_generator(settings.seed, "training noise", *address, device=device)
        self.augment = _augmentation(settings.augment, settings.seed, *address)
        # Filled in each step or epoch: fresh memory of this size costs page faults every time.
        shape = (self.size, *inputs.shape[1:])
        self.chosen = torch.empty(shape, dtype=inputs.dtype, device=device)
        self.batch = torch.empty(shape, device=device)
        rows = len(labels) if noise_size <= MOST_PER_EPOCH else self.size
        self.noise = torch.empty((rows, noise_size), device=device) if noise_size else None

    def epoch(self) -> Iterator[Batch]:
        """The batches of the next epoch; each is overwritten by the next."""
        samples = len(self.labels)
        order = torch.randperm(samples, generator=self.order_generator).to(self.inputs.device)
        noise = self.noise
        if noise is not None and len(noise) == samples:
            # One draw per epoch: row i is for the i-th sample of the shuffled order.
            noise.normal_(generator=self.noise_generator)
        for start in range(0, samples, self.size):
            rows = order[start : start + self.size]
            few = torch.index_select(self.inputs, 0, rows, out=self.chosen[: len(rows)])
            batch = in_unit_interval(few, self.batch[: len(rows)])
            part = None
            if noise is not None:
                if len(noise) == samples:
                    part = noise[start : start + len(rows)]
                else:
                    part = noise[: len(rows)].normal_(generator=self.noise_generator)
            yield Batch(self.augment(batch), self.labels[rows], part)


def in_unit_interval(inputs: Tensor, out: Tensor | None = None) -> Tensor:
    """Images uint8 [B, C, H, W] as float32 in [0, 1]; features stay as they are. Batch by batch: images are large."""
    if inputs.dtype != torch.uint8:
        return inputs
    return (inputs.float() if out is None else out.copy_(inputs)).div_(255)


def _augmentation(
    settings: Mapping[str, Any] | None, seed: int, round_: int, client: int
) -> Callable[[Tensor], Tensor]:
    """The function from a batch of images to what is trained on."""
    if not settings:
        return lambda images: images
    # Not by an import statement: a change of that module then concerns only the cells that augment.
    augment = importlib.import_module("bflp.engine.augment").augment
    generator = torch_generator(seed, "augmentation", round_, client)
    return lambda images: augment(images, **settings, generator=generator)
