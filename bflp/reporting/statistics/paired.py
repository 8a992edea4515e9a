"""Differences of results that are paired by seed: numbers in, numbers out.

Seeds fix the partition and the order of the data for all rows of a table, and the initial model for those of one kind,
so that the difference to a reference row with the same seed has less noise than either number. Differences come as
[..., B, S], over blocks and seeds, NaN where a pair is missing; all functions work on any leading axes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
# Of tests, after what corrects for their number.
LEVEL = 0.05
# With fewer pairs in all a difference has no interval.
FEWEST_PAIRS = 3
# With fewer than these no claim is made: a sign test of five pairs gives no p below 2 / 2^5 = 0.0625, and nobody sees
# of five differences whether they are normally distributed, as the t test takes them to be.
FEWEST_CLAIMED = 6


@dataclass(frozen=True)
class Estimate:
    """Mean differences [...], with their standard errors, degrees of freedom and interval; NaN where there are none.

    p: two-sided, of a true mean difference of 0; pairs: how many differences went in.
    """

    difference: Floats
    error: Floats
    df: Floats
    low: Floats
    high: Floats
    p: Floats
    pairs: NDArray[np.int64]

    def __getitem__(self, at: Any) -> Estimate:
        return Estimate(*(array[at] for array in vars(self).values()))

    def p_equivalent(self, margin: Any) -> Floats:
        """p of a true difference beyond ±margin [...]: two one-sided t tests (Schuirmann, 1987)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(stats.t.sf((margin - np.abs(self.difference)) / self.error, self.df))


def mean_difference(differences: Any) -> Estimate:
    """Mean over blocks of the mean differences within each: [..., B, S] gives [...].

    Blocks keep variances of their own: the standard error is sqrt(sum s_b^2 / n_b) / B, with the degrees of freedom of
    Welch (1947) and Satterthwaite (1946). Blocks with one pair have no variance and are left out; where fewer than
    FEWEST_PAIRS pairs remain, or all of them are equal, the mean of all blocks stands without an interval.
    """
    values = np.asarray(differences, dtype=np.float64)
    counts = (~np.isnan(values)).sum(-1)
    usable = np.where(counts >= 2, counts, 0)
    enough = usable.sum(-1) >= FEWEST_PAIRS
    usable = np.where(enough[..., None], usable, counts)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(usable > 0, np.nansum(values, -1) / counts, 0.0)
        squares = np.nansum((values - means[..., None]) ** 2, -1)
        # Of the mean of each block; what rounding leaves of equal numbers is no variance.
        variances = np.where(usable >= 2, squares / (counts - 1) / counts, 0.0)
        variances = np.where(variances > (1e-12 * means) ** 2, variances, 0.0)
        total = variances.sum(-1)
        blocks = (usable > 0).sum(-1)
        difference = np.where(blocks > 0, means.sum(-1) / blocks, np.nan)
        defined = enough & (total > 0)
        error = np.where(defined, np.sqrt(total) / blocks, np.nan)
        df = np.where(defined, total**2 / np.where(usable >= 2, variances**2 / (counts - 1), 0.0).sum(-1), np.nan)
    half = stats.t.isf((1 - CONFIDENCE) / 2, df) * error
    p = 2 * stats.t.sf(np.abs(difference) / error, df)
    return Estimate(difference, error, df, difference - half, difference + half, p, usable.sum(-1))


def improvement(differences: Any, higher_is_better: bool) -> tuple[Floats, Floats, Floats]:
    """Probability of improvement and its interval (Wilson, 1927): [..., B, S] gives three [...].

    The share of all pairs in which the row is better than the reference, ties counting half. Pairs of different blocks
    have different probabilities, with which the share varies less than a binomial one (Hoeffding, 1956): the interval
    is, if anything, too wide.
    """
    values = np.asarray(differences, dtype=np.float64) * (1 if higher_is_better else -1)
    n = (~np.isnan(values)).sum((-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = ((values > 0) + 0.5 * (values == 0)).sum((-2, -1)) / np.where(n >= FEWEST_PAIRS, n, np.nan)
        z2 = stats.norm.isf((1 - CONFIDENCE) / 2) ** 2
        centre = (share + z2 / (2 * n)) / (1 + z2 / n)
        half = np.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n**2))) / (1 + z2 / n)
    return share, np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def holm(p: Any) -> Floats:
    """Holm's (1979) adjusted p along the last axis, for all claims made at once; NaN stays, and does not count."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, axis=-1)  # NaN last
    ordered = np.take_along_axis(values, order, -1)
    factors = (~np.isnan(values)).sum(-1, keepdims=True) - np.arange(values.shape[-1])
    adjusted = np.empty_like(values)
    steps = np.minimum(np.maximum.accumulate(ordered * np.maximum(factors, 1), axis=-1), 1.0)
    np.put_along_axis(adjusted, order, steps, -1)
    return adjusted


def claims(estimate: Estimate, margin: Any) -> tuple[Floats, Floats]:
    """Adjusted p of "differs" and of "differs by less than ±margin", of metrics and rows: [..., M, R] gives two.

    Both are asked of all differences of at least FEWEST_CLAIMED pairs (others get NaN), so Holm's correction is over
    all these questions together.
    """
    p = np.stack([estimate.p, estimate.p_equivalent(margin)], axis=-3)
    p = np.where(np.expand_dims(estimate.pairs, -3) < FEWEST_CLAIMED, np.nan, p)
    differs, same = np.moveaxis(holm(p.reshape(*p.shape[:-3], -1)).reshape(p.shape), -3, 0)
    return differs, same
