"""Two 5x5 convolutions of 64 maps, each with ReLU and 2x2 pooling, and dense layers of 384, 192 and L units.

The network of D. A. E. Acar et al.: Federated Learning Based on Dynamic Regularization, 2021, arXiv 2111.04263, and of
the papers that compare with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from bflp.networks.layers import image_channels

MAPS, KERNEL = 64, 5
SMALLEST_SIDE = 16  # pixels; leaves one pixel after the second pooling


def build(image_shape: Sequence[int], labels: int) -> nn.Module:
    channels = image_channels("cnn", image_shape, SMALLEST_SIDE)
    _, height, width = image_shape
    features = MAPS * _after_pooling(height) * _after_pooling(width)
    return nn.Sequential(
        *(nn.Conv2d(channels, MAPS, KERNEL), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(MAPS, MAPS, KERNEL), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(features, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, labels)),
    )


def _after_pooling(pixels: int) -> int:
    """What is left of a side of the image."""
    for _ in range(2):
        pixels = (pixels - KERNEL + 1) // 2
    return pixels
