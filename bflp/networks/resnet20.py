"""ResNet-20 for small images, with group normalisation.

K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, 2015, arXiv 1512.03385, section 4.2, with
its shortcuts without parameters (option A). GroupNorm with two groups stands in the place of BatchNorm, whose running
statistics cannot be averaged: K. Hsieh et al.: The Non-IID Data Quagmire of Decentralized Machine Learning, 2020,
arXiv 1910.00189.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from bflp.networks.layers import image_channels

MAPS = (16, 32, 64)  # of the three stages
BLOCKS = 3  # per stage, of two convolutions each
GROUPS = 2


class Block(nn.Module):
    """relu(x + norm(conv(relu(norm(conv(x)))))); where the maps grow, the image is halved in the first convolution."""

    def __init__(self, inputs: int, maps: int) -> None:
        super().__init__()
        self.stride, self.new_maps = (1 if inputs == maps else 2), maps - inputs
        self.conv1 = nn.Conv2d(inputs, maps, 3, self.stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, maps)
        self.conv2 = nn.Conv2d(maps, maps, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, maps)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_maps))
        return F.relu(y + shortcut)


class ResNet(nn.Module):
    def __init__(self, channels: int, labels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, MAPS[0], 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(GROUPS, MAPS[0])
        widths = [MAPS[0], *(maps for maps in MAPS for _ in range(BLOCKS))]
        self.blocks = nn.Sequential(*(Block(inputs, maps) for inputs, maps in pairwise(widths)))
        self.dense = nn.Linear(MAPS[-1], labels)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.norm(self.conv(images))))
        return self.dense(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]


def build(image_shape: Sequence[int], labels: int) -> nn.Module:
    return ResNet(image_channels("resnet20", image_shape, 8), labels)
