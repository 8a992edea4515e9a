"""From arrays as they come to the arrays of a prepared file: all that can change a prepared number, and nothing else.

Data are prepared again when this module changes, so checks and messages are elsewhere, and it imports only numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def array_names(present: Collection[str]) -> tuple[str, ...]:
    """The arrays that are used where those in `present` are there: of images, or else of features.

    `train_clients`, the client of each training sample, is used where it is there.
    """
    inputs = "features" if "train_features" in present and "train_images" not in present else "images"
    names = (f"train_{inputs}", "train_labels", f"test_{inputs}", "test_labels")
    return (*names, "train_clients") if "train_clients" in present else names


def has_channels_last(shape: tuple[int, ...]) -> bool:
    """Whether images of this shape are certainly [N, H, W, C]: no image is 1, 3 or 4 pixels wide."""
    return len(shape) == 4 and shape[3] in (1, 3, 4) and min(shape[1:3]) > 4


def to_prepared(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Images become uint8 [N, C, H, W], features float32 [N, F], labels and clients int64 [N].

    Images come as [N, C, H, W], [N, H, W, C] or [N, H, W], labels and clients as [N] or [N, 1].
    """
    prepared = {}
    for name in array_names(arrays):
        array = np.asarray(arrays[name])
        if name.endswith("images"):
            array = array.transpose(0, 3, 1, 2) if has_channels_last(array.shape) else array
            prepared[name] = np.ascontiguousarray(array[:, None] if array.ndim == 3 else array, dtype=np.uint8)
        elif name.endswith("features"):
            prepared[name] = np.ascontiguousarray(array, dtype=np.float32)
        else:
            prepared[name] = np.ascontiguousarray(array.reshape(len(array)), dtype=np.int64)
    return prepared
