"""Two samples of runs, each known by its mean and deviation: how far apart, how sure, and what more runs would show.

Welch (1947): the variances may differ. Power: of a two-sided t test at 5%, exactly, by the noncentral t distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats

CONFIDENCE = 0.95
POWER = 0.8
MOST_RUNS = 1000


@dataclass(frozen=True)
class Sample:
    """runs: at least 2; deviation: the sample's standard deviation, above 0."""

    mean: float
    deviation: float
    runs: int

    @property
    def half_interval(self) -> float:
        """Half the 95% t interval of the mean."""
        return float(_quantile(self.runs - 1)) * self.deviation / math.sqrt(self.runs)


@dataclass(frozen=True)
class Difference:
    """First minus second. half_interval: of 95%; p: two-sided, of no difference; detectable: the true difference that
    as many runs would find with a probability of 80%, about."""

    value: float
    half_interval: float
    p: float
    detectable: float


def difference(first: Sample, second: Sample) -> Difference:
    """Welch's t test."""
    squares = [each.deviation**2 / each.runs for each in (first, second)]
    error = math.sqrt(sum(squares))
    df = sum(squares) ** 2 / sum(s**2 / (each.runs - 1) for s, each in zip(squares, (first, second), strict=True))
    value = first.mean - second.mean
    p = 2 * float(stats.t.sf(abs(value) / error, df))
    detectable = error * float(_quantile(df) + stats.t.ppf(POWER, df))
    return Difference(value, float(_quantile(df)) * error, p, detectable)


def runs_needed(true: float, deviation: float) -> int | None:
    """The fewest runs on each side that find a true difference with a probability of 80%; None: more than 1000."""
    for runs in range(2, MOST_RUNS + 1):
        df, shift = 2 * runs - 2, abs(true) / deviation * math.sqrt(runs / 2)
        if stats.nct.sf(_quantile(df), df, shift) + stats.nct.cdf(-_quantile(df), df, shift) >= POWER:
            return runs
    return None


def _quantile(df: float) -> float:
    return float(stats.t.isf((1 - CONFIDENCE) / 2, df))
