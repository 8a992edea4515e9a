"""The data of a cell as clients and evaluation take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# Test images per evaluation task. Part of every result: the noise is drawn per chunk.
EVALUATION_CHUNK = 500
# What is evaluated.
Source = Literal["test", "out of distribution", "held out"]


@dataclass(frozen=True)
class Inputs:
    """The data of a cell, as arrays that may be memory-mapped.

    train_inputs, test_inputs: images uint8 [N, C, H, W] or features float32 [N, F]; train_labels, test_labels: int64
    [N]; labels: how many there are; indices, offsets: client k holds the training samples
    indices[offsets[k]:offsets[k + 1]]; ood_inputs: of a second data set, or None; held_out: the training samples that
    no client trains on, or None.
    """

    train_inputs: NDArray[Any]
    train_labels: NDArray[np.int64]
    test_inputs: NDArray[Any]
    test_labels: NDArray[np.int64]
    labels: int
    indices: NDArray[np.int64]
    offsets: NDArray[np.int64]
    ood_inputs: NDArray[Any] | None = None
    held_out: NDArray[np.int64] | None = None

    def part(self, source: Source, chunk: int) -> NDArray[Any]:
        """The images of one evaluation task."""
        stretch = slice(chunk * EVALUATION_CHUNK, (chunk + 1) * EVALUATION_CHUNK)
        if source == "held out":
            assert self.held_out is not None
            return np.array(self.train_inputs[self.held_out[stretch]])
        inputs = self.ood_inputs if source == "out of distribution" else self.test_inputs
        assert inputs is not None
        return np.array(inputs[stretch])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Training samples per client [clients]."""
        return np.diff(self.offsets)
