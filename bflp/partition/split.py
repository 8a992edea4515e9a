"""From labels to each client's samples: the strategy by its name, and what is held out of each client."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.partition import SplitError
from bflp.rng import numpy_generator

Parts = list[NDArray[np.int64]]


def split(
    labels: NDArray[np.int64], clients: int, seed: int, settings: Mapping[str, Any]
) -> tuple[Parts, Parts | None]:
    """labels [N] -> each client's samples, and where `held_out` is set, those that are held out of them.

    settings: `strategy`, what it reads, and `held_out`. Raises SplitError.
    """
    parts = make_parts(labels, clients, settings["strategy"], settings, numpy_generator(seed, "partition"))
    if not settings.get("held_out"):
        return parts, None
    return held_out(parts, settings["held_out"], numpy_generator(seed, "held out"))


def make_parts(
    labels: NDArray[np.int64], clients: int, strategy: str, settings: Mapping[str, Any], generator: np.random.Generator
) -> Parts:
    """labels [N] -> one array of indices per client, each sample in exactly one.

    settings: what `bflp.partition.{strategy}` reads. Raises SplitError.
    """
    if clients > len(labels) and settings.get("min_samples") != 0:
        raise SplitError(f"{clients} clients are more than the {len(labels)} training samples")
    module = importlib.import_module(f"bflp.partition.{strategy}")
    return [part.astype(np.int64) for part in module.split(labels, clients, settings, generator)]


def held_out(parts: Parts, share: float, generator: np.random.Generator) -> tuple[Parts, Parts]:
    """Each client's samples that it trains on, and those that are held out: `share` of them, rounded, at random.

    A client that has samples keeps at least one. Both are in the order that they had.
    """
    kept, held = [], []
    for part in parts:
        count = max(0, min(round(share * len(part)), len(part) - 1))
        out = np.zeros(len(part), dtype=bool)
        out[generator.permutation(len(part))[:count]] = True
        kept.append(part[~out])
        held.append(part[out])
    return kept, held
