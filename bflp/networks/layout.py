"""Where each tensor of a network lies in its flat parameter vector.

A model travels between server and clients as one vector of D floats. Every aggregation rule treats three
stretches of it differently, so each is contiguous:

    | deterministic tensors | means of the variational weights | their log variances |

The deterministic network has the first stretch only.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

MAPS = (6, 16)  # feature maps of the two convolutions
KERNEL = 5
HIDDEN = (120, 84)  # units of the two hidden dense layers
SMALLEST_SIDE = 16  # pixels; leaves one pixel after the second pooling
INITIAL_LOG_VARIANCE_SPREAD = 0.001

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The flat layout of LeNet's parameters.

    image_shape: (C, H, W), H and W of at least 16 pixels. labels: L >= 2. variational: whether the dense
    weights are distributions (a mean and a log variance each) or numbers.
    """

    image_shape: tuple[int, int, int]
    labels: int
    variational: bool

    def __post_init__(self) -> None:
        channels, height, width = self.image_shape
        if channels < 1 or min(height, width) < SMALLEST_SIDE:
            raise ValueError(
                f"LeNet needs images of at least {SMALLEST_SIDE}x{SMALLEST_SIDE} pixels and one channel, "
                f"got {channels}x{height}x{width} (channels x height x width)"
            )
        if self.labels < 2:
            raise ValueError(f"a classifier needs at least 2 labels, got {self.labels}")

    @cached_property
    def feature_size(self) -> int:
        """Numbers per image that the convolutional part hands to the first dense layer."""
        _, height, width = self.image_shape
        return MAPS[1] * features_along(height) * features_along(width)

    @cached_property
    def dense_shapes(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of the three dense layers, the shapes of their weight matrices."""
        widths = (self.feature_size, *HIDDEN, self.labels)
        return tuple((outputs, inputs) for inputs, outputs in pairwise(widths))

    @cached_property
    def units(self) -> int:
        """Standard normal numbers that one forward pass of one image needs: one per unit of a dense layer."""
        return sum(outputs for outputs, _ in self.dense_shapes) if self.variational else 0

    @cached_property
    def tensors(self) -> dict[str, tuple[slice, Shape]]:
        """Each tensor's name -> (its stretch of the vector, its shape), in the vector's order."""
        tensors: dict[str, tuple[slice, Shape]] = {}
        start = 0
        for name, shape in self._shapes():
            stop = start + math.prod(shape)
            tensors[name] = (slice(start, stop), shape)
            start = stop
        return tensors

    @cached_property
    def size(self) -> int:
        """D, the number of floats in the vector."""
        return sum(math.prod(shape) for _, shape in self.tensors.values())

    @cached_property
    def _variational_size(self) -> int:
        return sum(math.prod(shape) for shape in self.dense_shapes) if self.variational else 0

    @cached_property
    def deterministic(self) -> slice:
        """The parameters that are numbers: convolutions and biases, or everything."""
        return slice(0, self.size - 2 * self._variational_size)

    @cached_property
    def means(self) -> slice:
        """The means of the variational weights; empty in the deterministic network."""
        return slice(self.deterministic.stop, self.deterministic.stop + self._variational_size)

    @cached_property
    def log_variances(self) -> slice:
        """Their log variances, in the order of the means; empty in the deterministic network."""
        return slice(self.means.stop, self.size)

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """The named tensors of a vector [D], as views of it."""
        if vector.shape != (self.size,):
            raise ValueError(f"expected a vector of {self.size} parameters, got shape {tuple(vector.shape)}")
        return {name: vector[where].view(shape) for name, (where, shape) in self.tensors.items()}

    def initial_vector(self, initial_log_variance: float, generator: torch.Generator) -> Tensor:
        """Random initial parameters [D], float32, drawn from a CPU generator in the vector's order.

        Means are N(0, 1 / fan_in), log variances N(initial_log_variance, 0.001^2), biases of variational
        layers 0. Everything else is torch's default for convolutions and dense layers, for weights and biases
        alike: uniform between -1 / sqrt(fan_in) and 1 / sqrt(fan_in).
        """
        vector = torch.zeros(self.size)
        for name, tensor in self.views(vector).items():
            layer, kind = name.split(".")
            scale = 1.0 / math.sqrt(self._fan_in(layer))
            if kind == "mean":
                tensor.normal_(0.0, scale, generator=generator)
            elif kind == "log_variance":
                tensor.normal_(initial_log_variance, INITIAL_LOG_VARIANCE_SPREAD, generator=generator)
            elif not (self.variational and layer.startswith("dense")):
                tensor.uniform_(-scale, scale, generator=generator)
        return vector

    def _shapes(self) -> Iterator[tuple[str, Shape]]:
        inputs = (self.image_shape[0], MAPS[0])
        for layer, (maps, channels) in enumerate(zip(MAPS, inputs, strict=True), start=1):
            yield f"conv{layer}.weight", (maps, channels, KERNEL, KERNEL)
            yield f"conv{layer}.bias", (maps,)
        for layer, (outputs, _) in enumerate(self.dense_shapes, start=1):
            yield f"dense{layer}.bias", (outputs,)
        for kind in ("mean", "log_variance") if self.variational else ("weight",):
            for layer, shape in enumerate(self.dense_shapes, start=1):
                yield f"dense{layer}.{kind}", shape

    def _fan_in(self, layer: str) -> int:
        """Inputs per output of a layer."""
        if layer.startswith("conv"):
            _, shape = self.tensors[f"{layer}.weight"]
            return math.prod(shape[1:])
        return self.dense_shapes[int(layer.removeprefix("dense")) - 1][1]


def features_along(pixels: int) -> int:
    """What is left of a side of the image after two rounds of unpadded 5x5 convolution and pooling by 2."""
    for _ in MAPS:
        pixels = (pixels - KERNEL + 1) // 2
    return pixels
