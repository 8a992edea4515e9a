"""file: a user's own split, in the form of a partition file: all indices, and where each client's begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.partition import SplitError


def split(
    labels: NDArray[np.int64], clients: int, settings: Mapping[str, Any], generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """labels [N] -> `clients` arrays of indices; settings: indices [N], offsets [clients + 1]. Raises SplitError."""
    indices, offsets = settings["indices"], settings["offsets"]
    if not np.array_equal(np.sort(indices), np.arange(len(labels))):
        raise SplitError(f"`indices` must hold each of the training samples 0 to {len(labels) - 1} once")
    found = len(offsets) - 1
    if found != clients:
        raise SplitError(f"`offsets` are of {found} clients, not {clients}: set up {found} clients")
    if offsets[0] != 0 or offsets[-1] != len(labels) or (np.diff(offsets) < 0).any():
        raise SplitError(f"`offsets` must go up from 0 to {len(labels)}")
    return np.split(indices, offsets[1:-1])
