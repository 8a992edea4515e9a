"""How many labels the clients of a partition have, seed by seed, without any data.

Partitions are drawn from labels alone, and the built-in data sets that this is for have equally many samples of each.
The effective number of labels of a client with the shares p is 1 / sum of p^2 (Hill 1973, "Diversity and evenness",
order 2): 10 where ten are equally frequent, 1 where there is only one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.datasets.registry import BUILT_IN
from bflp.partition.split import split


def label_counts(dataset: str, clients: int, seed: int, partition: Mapping[str, Any]) -> NDArray[np.int64]:
    """Training samples per client and label [clients, labels]; partition: its settings, as in a cell's result."""
    about = BUILT_IN[dataset]
    labels = np.repeat(np.arange(about.labels), about.train_size // about.labels)
    parts, _ = split(labels, clients, seed, partition)
    return np.stack([np.bincount(labels[part], minlength=about.labels) for part in parts])


def effective_labels(counts: NDArray[np.int64]) -> float:
    """Mean over the clients, weighted by their samples, of [clients, labels] counts."""
    sizes = counts.sum(axis=1)
    shares = counts / sizes[:, None]
    return float(np.average(1 / (shares**2).sum(axis=1), weights=sizes))
