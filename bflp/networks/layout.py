"""Where each tensor of a network lies in its flat parameter vector.

A model travels between server and clients as one vector of D floats. Every aggregation rule treats three
parts of it differently, so each is contiguous:

    | deterministic tensors | means of the Gaussian weights | their log variances |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

INITIAL_LOG_VARIANCE_SPREAD = 0.001

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


class Layout:
    """The names and shapes of a network's tensors; a subclass says how the first two parts start (`fill`).

    deterministic, gaussian: name -> shape, in the vector's order; a Gaussian weight "w" has the tensors "w.mean" and
    "w.log_variance". noise_size: standard normal numbers that a training step needs for each sample of the batch.
    """

    def __init__(self, deterministic: Shapes, gaussian: Shapes, noise_size: int) -> None:
        self.gaussian = dict(gaussian)
        self.noise_size = noise_size
        self.shapes = dict(deterministic)
        for kind in ("mean", "log_variance"):
            self.shapes |= {f"{name}.{kind}": shape for name, shape in gaussian.items()}
        gaussians = sum(map(math.prod, gaussian.values()))
        numbers = sum(map(math.prod, deterministic.values()))
        self.deterministic = slice(0, numbers)
        self.means = slice(numbers, numbers + gaussians)
        self.log_variances = slice(numbers + gaussians, numbers + 2 * gaussians)
        self.size = numbers + 2 * gaussians  # D

    def fill(self, tensors: dict[str, Tensor], generator: torch.Generator) -> None:
        """Write random initial deterministic tensors and means into the views of a vector of zeros."""
        raise NotImplementedError

    @cached_property
    def tensors(self) -> dict[str, tuple[slice, Shape]]:
        """Each tensor's name -> (its slice of the vector, its shape), in the vector's order."""
        stops = [0, *accumulate(map(math.prod, self.shapes.values()))]
        slices = map(slice, stops, stops[1:])
        return dict(zip(self.shapes, zip(slices, self.shapes.values(), strict=True), strict=True))

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """The named tensors of a vector [D], as views of it."""
        if vector.shape != (self.size,):
            raise ValueError(f"expected a vector of {self.size} parameters, got shape {tuple(vector.shape)}")
        return {name: vector[where].view(shape) for name, (where, shape) in self.tensors.items()}

    def initial_vector(self, initial_log_variance: float, generator: torch.Generator) -> Tensor:
        """Random initial parameters [D], float32, drawn from a CPU generator alone, in the vector's order.

        Log variances are N(initial_log_variance, 0.001^2).
        """
        vector = torch.zeros(self.size)
        tensors = self.views(vector)
        self.fill(tensors, generator)
        for name in self.gaussian:
            tensors[f"{name}.log_variance"].normal_(
                initial_log_variance, INITIAL_LOG_VARIANCE_SPREAD, generator=generator
            )
        return vector
