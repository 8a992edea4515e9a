"""Draw until every client has enough samples, but not for ever."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bflp.partition import SplitError

MOST_DRAWS = 1000


def redraw(
    draw: Callable[[], list[NDArray[np.int64]]], samples: int, clients: int, alpha: float, min_samples: int
) -> list[NDArray[np.int64]]:
    """The first of up to MOST_DRAWS results of `draw` that gives each client at least `min_samples`.

    Raises SplitError, saying which settings clash and what to change.
    """
    clash = f"alpha {alpha}, {clients} clients and min_samples {min_samples} clash on {samples} training samples"
    advice = "raise alpha, lower min_samples, or use fewer clients"
    if clients * min_samples > samples:
        raise SplitError(f"{clash}: {clients} x {min_samples} samples are more than there are; {advice}")
    best = 0
    for _ in range(MOST_DRAWS):
        parts = draw()
        smallest = min(map(len, parts))
        if smallest >= min_samples:
            return parts
        best = max(best, smallest)
    raise SplitError(f"{clash}: in {MOST_DRAWS} draws the smallest client never had more than {best} samples; {advice}")
