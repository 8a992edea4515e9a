"""quantity, quantity skew: labels as in iid, but the clients' sizes follow Dirichlet(alpha)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.partition.redraw import redraw


def split(
    labels: NDArray[np.int64], clients: int, settings: Mapping[str, Any], generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """labels [N] -> `clients` arrays of indices; settings: alpha, min_samples. Raises SplitError."""

    def draw() -> list[NDArray[np.int64]]:
        shares = generator.dirichlet(np.full(clients, settings["alpha"]))
        cuts = (np.cumsum(shares)[:-1] * len(labels)).round().astype(np.int64)
        return np.split(generator.permutation(len(labels)), cuts)

    return redraw(draw, len(labels), clients, settings["alpha"], settings["min_samples"])
