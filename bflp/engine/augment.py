"""Augmentation of training images: reflect-pad, crop at random, flip at random."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def augment(images: Tensor, crop_padding: int, flip_probability: float, generator: torch.Generator) -> Tensor:
    """images [B, C, H, W] -> as many of the same shape, each cropped and flipped by its own draw.

    `generator` lives on the CPU, so that the draws are the same on every device.
    """
    drawn = draw(len(images), crop_padding, flip_probability, generator)
    return moved(images, drawn, crop_padding)


def draw(count: int, crop_padding: int, flip_probability: float, generator: torch.Generator) -> Tensor:
    """What is drawn for each of `count` images, int64 [count, 3]: row and column of the crop, whether it is flipped."""
    row = torch.randint(0, 2 * crop_padding + 1, (count, 1), generator=generator)
    column = torch.randint(0, 2 * crop_padding + 1, (count, 1), generator=generator)
    flip = torch.rand((count, 1), generator=generator) < flip_probability
    return torch.cat([row, column, flip.long()], dim=1)


def moved(images: Tensor, drawn: Tensor, crop_padding: int) -> Tensor:
    """The images as drawn."""
    batch, channels, height, width = images.shape
    row, column, flip = drawn.split(1, dim=1)
    rows = row + torch.arange(height, device=drawn.device)
    columns = torch.arange(width, device=drawn.device).expand(batch, width)
    columns = column + torch.where(flip.bool(), width - 1 - columns, columns)
    padded = functional.pad(images, (crop_padding,) * 4, mode="reflect") if crop_padding else images
    # One flat gather per image and channel: index = row * padded width + column.
    index = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).reshape(batch, 1, -1).to(images.device)
    flat = padded.reshape(batch, channels, -1)
    return flat.gather(2, index.expand(batch, channels, -1)).reshape(batch, channels, height, width)
