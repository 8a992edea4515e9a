"""Dense layers alone, for features and for images, whose pixels it takes in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Gt

if TYPE_CHECKING:
    from torch import nn


def build(
    image_shape: Sequence[int],
    labels: int,
    sizes: Sequence[Annotated[int, Gt(0)]] = (200, 100),
    activation: Literal["relu", "sigmoid", "tanh", "gelu", "elu"] = "relu",
) -> nn.Module:
    """sizes: units of each hidden layer; none of them makes a linear classifier."""
    # Not above: settings are read without torch.
    from torch import nn

    between = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "gelu": nn.GELU, "elu": nn.ELU}[activation]
    widths = [math.prod(image_shape), *sizes, labels]
    layers = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths)]
    hidden = [stage for layer in layers[:-1] for stage in (layer, between())]
    return nn.Sequential(nn.Flatten(), *hidden, layers[-1])
