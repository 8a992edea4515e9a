"""A network of one's own, which tests name by its path: with each kind of layer that a posterior treats in its way."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bflp.networks.layers import Dropout


class Scale(nn.Module):
    """A parameter of its own, which is drawn itself where it is Gaussian."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(maps, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def build(image_shape: Sequence[int], labels: int, width: int = 4) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(image_shape[0], width, 3, stride=2, padding=1),
        nn.GroupNorm(2, width),
        Scale(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        Dropout(0.1),
        nn.Linear(16 * width, labels),
    )
