"""dirichlet: per label, Dirichlet(alpha) shares over the clients.

A client that already holds N / clients samples gets no more of that label, and the shares are renormalised. Redrawn
until every client has `min_samples`. As in the paper's program, after Yurochkin et al. (2019). (Hsu et al. (2019)
draw shares of labels for each client, of equal sizes.)
"""

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
    by_label = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    alpha, fair_size = settings["alpha"], len(labels) / clients

    def draw() -> list[NDArray[np.int64]]:
        parts: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
        sizes = np.zeros(clients, dtype=np.int64)
        for indices in by_label:
            shares = generator.dirichlet(np.full(clients, alpha)) * (sizes < fair_size)
            # With a tiny alpha all the weight can fall on clients that are full: then those with room share alike.
            shares = shares if shares.sum() > 0 else (sizes < fair_size).astype(np.float64)
            cuts = (np.cumsum(shares / shares.sum())[:-1] * len(indices)).astype(np.int64)
            for client, part in enumerate(np.split(generator.permutation(indices), cuts)):
                parts[client].append(part)
                sizes[client] += len(part)
        return [np.concatenate(part) for part in parts]

    return redraw(draw, len(labels), clients, alpha, settings["min_samples"])
