"""Statistics over blocks: average ranks with Friedman's test and Nemenyi's critical difference, and the Bayesian
signed-rank test. They take blocks as independent draws of what a method may meet, one number each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bflp.reporting.statistics.paired import LEVEL

Floats = NDArray[np.float64]

# With fewer blocks the chi-square distribution of Friedman's statistic does not hold (Demšar, 2006, section 3.2.2).
FEWEST_BLOCKS = 10
# A diagram whose critical difference is wider tells hardly any two rows apart.
WIDEST_CRITICAL_DIFFERENCE = 3.0
FEWEST_ROWS = 3


@dataclass(frozen=True)
class Ranks:
    """Average ranks [R] over blocks, 1 the best; p: Friedman's, of rows that do not differ."""

    average: Floats
    blocks: int
    p: float
    critical_difference: float

    @property
    def allowed(self) -> bool:
        """Whether rows and blocks are enough for a critical difference diagram."""
        return len(self.average) >= FEWEST_ROWS and self.blocks >= blocks_needed(len(self.average))


def average_ranks(means: Any, higher_is_better: bool) -> Ranks:
    """Ranks of rows by their means [R, B] within each block; ties share their ranks. At least one row and block."""
    values = np.asarray(means, dtype=np.float64) * (-1 if higher_is_better else 1)
    rows, blocks = values.shape
    ranks = stats.rankdata(values, axis=0)
    defined = rows >= FEWEST_ROWS and blocks >= 2 and bool((np.ptp(ranks, axis=0) > 0).any())
    p = float(stats.friedmanchisquare(*values).pvalue) if defined else math.nan
    return Ranks(ranks.mean(axis=1), blocks, p, critical_difference(rows, blocks) if rows > 1 else math.nan)


def critical_difference(rows: int, blocks: int, level: float = LEVEL) -> float:
    """Nemenyi's: average ranks that differ by more differ at `level`, all pairs of rows compared (Demšar, 2006)."""
    quantile = float(stats.studentized_range.isf(level, rows, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(rows * (rows + 1) / (6 * blocks))


def blocks_needed(rows: int) -> int:
    """How many blocks a critical difference diagram of so many rows needs."""
    narrow = (critical_difference(rows, 1) / WIDEST_CRITICAL_DIFFERENCE) ** 2
    return max(FEWEST_BLOCKS, math.ceil(narrow))


def not_told_apart(average: Floats, difference: float) -> list[tuple[int, int]]:
    """The largest runs (first, last) of at least two ranks, sorted ascending, that lie within the difference."""
    lasts = np.searchsorted(average, average + difference, side="right") - 1
    return [
        (first, int(last))
        for first, last in enumerate(lasts)
        if last > first and (first == 0 or last > lasts[first - 1])
    ]


def signed_rank(differences: Any, margin: float, generator: np.random.Generator, draws: int = 20_000) -> Floats:
    """Bayesian signed-rank test (Benavoli et al., 2014): probabilities [3] of a typical difference below -margin,
    within ±margin and above it, from one difference a block [B].

    The prior is half an observation of no difference.
    """
    values = np.concatenate([[0.0], np.asarray(differences, dtype=np.float64)])
    sums = values[:, None] + values
    weights = generator.dirichlet([0.5] + [1.0] * (len(values) - 1), draws)
    below = np.einsum("di,ij,dj->d", weights, (sums < -2 * margin).astype(float), weights, optimize=True)
    above = np.einsum("di,ij,dj->d", weights, (sums > 2 * margin).astype(float), weights, optimize=True)
    winner = np.argmax([below, 1 - below - above, above], axis=0)
    return np.bincount(winner, minlength=3) / draws
