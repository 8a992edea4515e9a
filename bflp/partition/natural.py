"""natural: the clients that the data come from, in the order of their numbers, as `train_clients` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.partition import SplitError


def split(
    labels: NDArray[np.int64], clients: int, settings: Mapping[str, Any], generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """labels [N] -> `clients` arrays of indices; settings: train_clients [N] or None. Raises SplitError."""
    owners = settings["train_clients"]
    if owners is None:
        raise SplitError("strategy natural needs `train_clients`, each training sample's client, in the source file")
    names, sizes = np.unique(owners, return_counts=True)
    if len(names) != clients:
        raise SplitError(f"the data come from {len(names)} clients, not {clients}: set up {len(names)} clients")
    return np.split(np.argsort(owners, kind="stable"), np.cumsum(sizes)[:-1])
