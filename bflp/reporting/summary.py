"""Numbers of the tables from the tidy results: means over seeds with their standard errors, and what is bold.

A standard error is the sample standard deviation / sqrt(seeds).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bflp.engine.metrics.registry import METRICS
from bflp.reporting.figures.block import mean_and_error
from bflp.reporting.table import Entry
from bflp.results.frame import NAMES

if TYPE_CHECKING:
    import pandas as pd

KEYS = list(NAMES)
BoldRule = Callable[[Sequence[float], Sequence[float]], list[bool]]


def mean_entry(values: Iterable[float | None], wanted: int | None = None, digits: int = 2) -> Entry:
    """The mean of the values that are there, with its standard error. wanted: how many there could be; None: those."""
    present = np.array([value for value in values if value is not None])
    if not len(present):
        return Entry(wanted=wanted or 0)
    mean, error = mean_and_error(present)
    return Entry(float(mean), float(error), len(present), wanted or len(present), digits=digits)


class Summary:
    """Means and standard errors over seeds.

    frame: the tidy results; seeds: how many the grid has.
    """

    def __init__(self, frame: pd.DataFrame, seeds: int) -> None:
        self.seeds = seeds
        # Only where the numbers are of curves.
        self.ece_bins = sorted(map(int, frame["ece_bins"].dropna().unique())) if "ece_bins" in frame else []
        metrics = [name for name in METRICS if name in frame]
        grouped = frame.astype(dict.fromkeys(metrics, float)).groupby(KEYS)
        self._numbers = grouped[metrics].agg(["mean", "sem", "count"]).to_dict("index")
        self._diverged = {key: int(group.astype(bool).sum()) for key, group in grouped["diverged"]}

    def entry(self, key: tuple[str, ...], metric: str) -> Entry:
        """The number of (dataset, partition, clients, model, aggregator); an empty Entry where nothing has run."""
        if diverged := self._diverged.get(key, 0):
            # A mean over the seeds that happened to survive would flatter the row.
            return Entry(wanted=self.seeds, diverged=diverged)
        numbers = self._numbers.get(key)
        if numbers is None or (metric, "mean") not in numbers:
            return Entry(wanted=self.seeds)
        mean, error, count = (numbers[metric, what] for what in ("mean", "sem", "count"))
        return Entry(mean, error, int(count), self.seeds, digits=METRICS[metric].digits)


def marked(entries: Sequence[Entry], rule: BoldRule) -> list[Entry]:
    """The entries of a column, in bold what the rule says."""
    flags = rule([entry.mean for entry in entries], [entry.standard_error for entry in entries])
    return [replace(entry, bold=bold) for entry, bold in zip(entries, flags, strict=True)]


def bold_best(means: Sequence[float], standard_errors: Sequence[float], higher_is_better: bool | None) -> list[bool]:
    """Bold in a column of a block is what lies within the best row's standard error of the best mean.

    Of several rows with the best mean the one with the smallest standard error counts. Missing rows (NaN) are not
    bold; a missing standard error counts as 0. higher_is_better: None where neither is better, and nothing bold.
    """
    present = [index for index, mean in enumerate(means) if not math.isnan(mean)]
    if higher_is_better is None or not present:
        return [False] * len(means)
    errors = [0.0 if math.isnan(error) else error for error in standard_errors]
    sign = -1 if higher_is_better else 1
    best = min(present, key=lambda index: (sign * means[index], errors[index]))
    return [index in present and abs(mean - means[best]) <= errors[best] + 1e-9 for index, mean in enumerate(means)]


def bold_lowest(means: Sequence[float], standard_errors: Sequence[float] = ()) -> list[bool]:
    """Bold in a column of spreads are the three lowest means, whatever their errors."""
    present = sorted((mean, index) for index, mean in enumerate(means) if not math.isnan(mean))
    chosen = {index for _, index in present[:3]}
    return [index in chosen for index in range(len(means))]
