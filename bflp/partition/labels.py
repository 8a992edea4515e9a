"""labels, label skew: a fixed number of labels per client; each label is shared equally by the clients holding it.

After McMahan et al. (2017), whose clients hold two shards of equal size, of one or two labels as it happens: here the
number of labels is exact, and sizes differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.partition import SplitError


def split(
    labels: NDArray[np.int64], clients: int, settings: Mapping[str, Any], generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """labels [N] -> `clients` arrays of indices; settings: labels_per_client. Raises SplitError."""
    names = np.unique(labels)
    wanted = settings["labels_per_client"]
    if wanted > len(names):
        raise SplitError(f"labels_per_client {wanted} is more than the {len(names)} labels of the data set")
    if wanted * clients < len(names):
        raise SplitError(
            f"{clients} clients with labels_per_client {wanted} cannot hold all {len(names)} labels: raise one of them"
        )
    holders: list[list[int]] = [[] for _ in names]
    for client in generator.permutation(clients):
        # The labels with the fewest holders so far, ties at random: every label is held about equally often.
        order = np.lexsort((generator.random(len(names)), np.array([len(held) for held in holders])))
        for label in order[:wanted]:
            holders[label].append(int(client))
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for name, clients_of_label in zip(names, holders, strict=True):
        indices = generator.permutation(np.flatnonzero(labels == name))
        if len(indices) < len(clients_of_label):
            raise SplitError(
                f"label {name} has {len(indices)} samples, too few for the {len(clients_of_label)} clients that are to "
                f"share it: lower labels_per_client {wanted}, or use fewer clients"
            )
        for client, part in zip(clients_of_label, np.array_split(indices, len(clients_of_label)), strict=True):
            parts[client].append(part)
    return [np.concatenate(part) for part in parts]
