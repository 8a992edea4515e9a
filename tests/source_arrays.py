"""The arrays of a small source file, and damaged copies of a file."""

from __future__ import annotations

from typing import Any

import numpy as np

TRAIN, TEST, SIDE, LABELS = 12, 6, 16, 3


def good(channels: int | None = None) -> dict[str, Any]:
    """The arrays of a small source file, gray without a channel axis unless `channels` is given."""
    generator = np.random.default_rng(0)
    result: dict[str, Any] = {}
    for split, count in (("train", TRAIN), ("test", TEST)):
        shape = (count, SIDE, SIDE) if channels is None else (count, channels, SIDE, SIDE)
        result[f"{split}_images"] = generator.integers(0, 256, shape, dtype=np.uint8)
        result[f"{split}_labels"] = np.arange(count) % LABELS
    return result


def flips(whole: bytes) -> list[bytes]:
    """The file with one bit changed, at many places: all of its last and first headers, and every 61st byte."""
    places = {*range(0, len(whole), 61), *range(len(whole) - 300, len(whole)), *range(180)}
    return [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in sorted(places)]
