"""All statistics of a grid, from its tidy results: every row against the reference row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bflp.engine.metrics.registry import METRICS, Metric
from bflp.grid.plan import Plan
from bflp.reporting.chosen_rounds import in_words
from bflp.reporting.statistics.paired import LEVEL, Estimate, claims, improvement, mean_difference
from bflp.reporting.statistics.ranks import Ranks, average_ranks, signed_rank
from bflp.reporting.titles import reference_row, row_title
from bflp.results.sweeps import shown
from bflp.settings.sections import StatisticsSettings

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[str, str]  # model, aggregator
Block = tuple[str, str, str]  # dataset, partition, clients
Floats = NDArray[np.float64]
KEYS = ["model", "aggregator", "dataset", "partition", "clients", "seed"]

# With fewer blocks the prior of the signed-rank test says more than they do.
FEWEST_SIGNED_RANKS = 5


@dataclass(frozen=True)
class Compared:
    """One metric of R rows in B blocks, compared with the reference row.

    means [R, B], over the seeds that all rows have in a block; overall: an Estimate [R] over blocks; by_block: one
    [R, B]; differs, same: adjusted p [R] (see `paired.claims`); improvement: share, low, high [3, R];
    outcomes [R, 3]: in how many blocks the mean difference is a loss, a tie, a win; typical [R, 3]: the
    probabilities of these from the signed-rank test over blocks, NaN where there are few; equal [R]: no run differs;
    ranks: of `ranked` rows, None where no block has all of them.
    """

    name: str
    metric: Metric
    margin: float
    means: Floats
    overall: Estimate
    by_block: Estimate
    differs: Floats
    same: Floats
    improvement: Floats
    outcomes: NDArray[np.int64]
    typical: Floats
    equal: NDArray[np.bool_]
    ranks: Ranks | None
    ranked: NDArray[np.int64]

    @property
    def sign(self) -> int:
        """1 where more is better, else -1."""
        return 1 if self.metric.higher_is_better else -1

    @property
    def digits(self) -> int:
        """Decimals with which the margin has two significant digits."""
        return max(0, 1 - math.floor(math.log10(self.margin)))

    def claims(self, row: int) -> list[str]:
        """What is claimed of a row: "better" or "worse", and whether it is "the same" but for what does not matter."""
        gain = self.sign * self.overall.difference[row]
        differs = [] if not self.differs[row] < LEVEL else ["better" if gain > 0 else "worse"]
        return [*differs, *(["the same"] if self.same[row] < LEVEL else [])]


@dataclass(frozen=True)
class Statistics:
    """All compared metrics. diverged: (row, block) that are left out, with the seeds that diverged; missing: how many
    runs of a row are not there or not evaluated; numbers: which rounds they are of, empty for the final models."""

    rows: Sequence[Row]
    blocks: Sequence[Block]
    seeds: Sequence[int]
    reference: int
    compared: Sequence[Compared]
    diverged: Mapping[tuple[Row, Block], Sequence[int]]
    missing: Mapping[Row, int]
    numbers: str = ""

    @property
    def others(self) -> list[int]:
        """The rows but the reference."""
        return [index for index in range(len(self.rows)) if index != self.reference]

    def names(self) -> list[str]:
        return [row_title(row) for row in self.rows]


def of_plan(plan: Plan, frame: pd.DataFrame) -> Statistics:
    """The statistics of the rows that a grid shows. frame: as `cli.common.shown_frame` gives it."""
    rows, blocks, settings = plan.shown_rows, plan.blocks(), plan.settings
    found = analyse(shown(frame), rows, blocks, settings.grid.seeds, settings.statistics, METRICS)
    return replace(found, numbers=in_words(settings.tables))


def analyse(
    frame: pd.DataFrame,
    rows: Sequence[Row],
    blocks: Sequence[tuple[Any, Any, Any]],
    seeds: Sequence[int],
    settings: StatisticsSettings,
    metrics: Mapping[str, Metric],
) -> Statistics:
    """Compare the rows of a tidy frame of results, which may lack some. metrics: all there are, by name.

    A row that diverged with any seed of a block is left out of that block, as in the tables: the seeds that happened
    to survive would flatter it. Raises ConfigError for a reference that there is not.
    """
    reference = reference_row(settings.reference, rows)
    blocks = [(str(dataset), str(partition), str(clients)) for dataset, partition, clients in blocks]
    names = [name for name in metrics if name in settings.equivalence]
    margins = np.array([settings.equivalence[name] for name in names])
    values, diverged, missing = _values(frame, rows, blocks, seeds, names)
    differences = values - values[:, [reference]]
    overall, by_block = mean_difference(differences), _block_by_block(differences)
    differs, same = claims(overall, margins[:, None])
    compared = []
    for index, name in enumerate(names):
        metric, margin = metrics[name], float(margins[index])
        higher_is_better = bool(metric.higher_is_better)  # settings refuse metrics of which neither is better
        gains = (1 if higher_is_better else -1) * by_block.difference[index]
        # Differences of decimals that are the margin come out a rounding error beyond it.
        near = margin * (1 + 1e-9)
        means, ranked = _common_means(values[index])
        complete = ~np.isnan(means[ranked]).any(axis=0)
        compared.append(
            Compared(
                name=name,
                metric=metric,
                margin=margin,
                means=means,
                overall=overall[index],
                by_block=by_block[index],
                differs=differs[index],
                same=same[index],
                improvement=np.stack(improvement(differences[index], higher_is_better)),
                outcomes=_outcomes(gains, near),
                typical=np.stack([_typical(row[~np.isnan(row)], near) for row in gains]),
                equal=~np.nan_to_num(differences[index]).any(axis=(1, 2)),
                ranks=average_ranks(means[ranked][:, complete], higher_is_better)
                if len(ranked) and complete.any()
                else None,
                ranked=ranked,
            )
        )
    return Statistics(rows, blocks, seeds, reference, compared, diverged, missing)


def differing(
    frame: pd.DataFrame,
    rows: Sequence[Row],
    blocks: Sequence[tuple[Any, Any, Any]],
    seeds: Sequence[int],
    reference: int,
    names: Sequence[str],
) -> set[tuple[str, ...]]:
    """(data set, partition, set-up, model, aggregator, metric) of the mean differences to the reference row whose
    interval, that of `Compared.by_block`, excludes 0. Arguments as of `analyse`; names: of the metrics."""
    values, _, _ = _values(frame, rows, blocks, seeds, names)
    found = _block_by_block(values - values[:, [reference]])
    excluded = (found.low > 0) | (found.high < 0)  # not where there is no interval
    return {(*blocks[block], *rows[row], names[name]) for name, row, block in np.argwhere(excluded)}


def _block_by_block(differences: Floats) -> Estimate:
    """Of each block on its own: differences [M, R, B, S] give [M, R, B]."""
    return mean_difference(differences[..., None, :])


def _values(
    frame: pd.DataFrame, rows: Sequence[Row], blocks: Sequence[Block], seeds: Sequence[int], metrics: Sequence[str]
) -> tuple[Floats, dict[tuple[Row, Block], list[int]], dict[Row, int]]:
    """Results [M, R, B, S], NaN where there are none or left out; who diverged; how many are missing."""
    index = [(*row, *block, seed) for row in rows for block in blocks for seed in seeds]
    found = frame.astype({"clients": str}).set_index(KEYS).reindex(index)
    # What has run and is evaluated has an accuracy, if it has not diverged.
    found = found.reindex(columns=list(dict.fromkeys(["diverged", "accuracy", *metrics])))
    shape = len(rows), len(blocks), len(seeds)
    values = np.array([found[name].to_numpy(np.float64) for name in metrics]).reshape(-1, *shape)
    diverged, unmeasured = (np.reshape(each, shape) for each in (found["diverged"].eq(True), found["accuracy"].isna()))
    values[:, diverged.any(-1)] = np.nan
    return (
        values,
        {
            (rows[row], blocks[block]): [seed for seed, gone in zip(seeds, diverged[row, block], strict=True) if gone]
            for block, row in np.argwhere(diverged.any(-1).T)
        },
        {row: count for row, count in zip(rows, (unmeasured & ~diverged).sum((1, 2)).tolist(), strict=True) if count},
    )


def _common_means(values: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Means [R, B] over the seeds that all rows have, of values [R, B, S]; and the rows that have any value."""
    ranked = np.flatnonzero(~np.isnan(values).all(axis=(1, 2)))
    common = ~np.isnan(values[ranked]).any(axis=0)  # [B, S]
    with np.errstate(invalid="ignore"):
        means = np.where(common, np.nan_to_num(values), 0.0).sum(-1) / common.sum(-1)
    means[np.setdiff1d(np.arange(len(values)), ranked)] = np.nan
    return means, ranked


def _outcomes(gains: Floats, margin: float) -> NDArray[np.int64]:
    """Losses, ties and wins [R, 3] of gains [R, B]."""
    return np.stack([(gains < -margin).sum(1), (np.abs(gains) <= margin).sum(1), (gains > margin).sum(1)], axis=1)


def _typical(gains: Floats, margin: float) -> Floats:
    if len(gains) < FEWEST_SIGNED_RANKS:
        return np.full(3, np.nan)
    # A generator of its own: what a row says does not depend on which others there are.
    return signed_rank(gains, margin, np.random.default_rng(0))
