"""iid: a random permutation cut into equal parts (sizes differ by one at most)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def split(
    labels: NDArray[np.int64], clients: int, settings: Mapping[str, Any], generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """labels [N] -> `clients` arrays of indices."""
    return np.array_split(generator.permutation(len(labels)), clients)
