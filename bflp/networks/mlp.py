"""Dense layers alone, for features and for images, whose pixels it takes in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from bflp.networks import NetworkError

ACTIVATIONS = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "gelu": nn.GELU, "elu": nn.ELU}


def build(
    image_shape: Sequence[int], labels: int, sizes: Sequence[int] = (200, 100), activation: str = "relu"
) -> nn.Module:
    """sizes: units of each hidden layer; none of them makes a linear classifier."""
    if activation not in ACTIVATIONS:
        raise NetworkError(f"mlp: activation is one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if not isinstance(sizes, Sequence) or not all(type(size) is int and size > 0 for size in sizes):
        raise NetworkError(f"mlp: sizes is a list of positive whole numbers, got {sizes!r}")
    widths = [math.prod(image_shape), *sizes, labels]
    layers = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths)]
    hidden = [stage for layer in layers[:-1] for stage in (layer, ACTIVATIONS[activation]())]
    return nn.Sequential(nn.Flatten(), *hidden, layers[-1])
