"""A block of results: what one figure shows, cells of the same data set, partition and number of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.grid.plan import NO_AGGREGATOR
from bflp.reporting.titles import block_title

Row = tuple[str, str]  # model, aggregator
Floats = NDArray[np.float64]

# FED and FVBA weigh clients equally, FEDAVG and FVBWA by data size: what differs in one panel is the rule alone.
WEIGHTINGS = (("FED", "FVBA"), ("FEDAVG", "FVBWA"))
WEIGHTS = ("equal weights", "weights by data size")


@dataclass(frozen=True)
class Curve:
    """A metric over rounds [T]: mean over the seeds that have run, and its standard error (NaN with one seed)."""

    rounds: NDArray[np.int64]
    mean: Floats
    error: Floats


@dataclass(frozen=True)
class Block:
    """The results of a block, by row of the tables and seed; what has not run is missing.

    results: (model, aggregator) -> seed -> the cell's JSON; rows, seeds: all that are wanted, in the tables' order;
    label_counts: training samples per client and label [C, L] with the seed `label_seed`, or None.
    """

    dataset: str
    partition: str
    clients: int
    rows: Sequence[Row]
    seeds: Sequence[int]
    results: Mapping[Row, Mapping[int, Mapping[str, Any]]] = field(default_factory=dict)
    label_counts: NDArray[np.int64] | None = None
    label_seed: int = 0

    @property
    def title(self) -> str:
        return block_title(self.dataset, self.partition, self.clients)

    def rules(self) -> list[str]:
        """The rules in the tables' order; `none` stands for the models that have none."""
        return list(dict.fromkeys(rule for _, rule in self.rows))

    def aggregators(self) -> list[str]:
        """The rules of the models with posteriors."""
        return [rule for rule in self.rules() if rule != NO_AGGREGATOR]

    def without_rule(self) -> str:
        """What legends call the models without a rule."""
        return " / ".join(model for model, rule in self.rows if rule == NO_AGGREGATOR)

    def of(self, row: Row) -> list[Mapping[str, Any]]:
        """The results of a row that are there, in the order of the seeds."""
        found = self.results.get(row, {})
        return [found[seed] for seed in self.seeds if seed in found]

    def diverged(self, row: Row) -> int:
        """How many of a row's seeds diverged."""
        return sum(result["diverged"] is not None for result in self.of(row))

    def final(self, row: Row, metric: str) -> tuple[float, float]:
        """Mean and standard error over seeds of a final metric; NaN where none has run or, as in the tables, any
        seed diverged, since a mean over the seeds that happened to survive would flatter the row."""
        results = self.of(row)
        if not results or self.diverged(row):
            return float("nan"), float("nan")
        mean, error = mean_and_error(np.array([[result["final"][metric]] for result in results], dtype=np.float64))
        return float(mean[0]), float(error[0])

    def curve(self, row: Row, metric: str) -> Curve:
        """A metric over the rounds that all seeds that have run evaluated; one that diverged ends its row's curve."""
        histories = [
            {entry["round"]: entry[metric] for entry in result["rounds"] if entry[metric] is not None}
            for result in self.of(row)
        ]
        if not histories:
            return Curve(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
        rounds = sorted(set.intersection(*(set(history) for history in histories)))
        values = np.array([[history[round_] for round_ in rounds] for history in histories], dtype=np.float64)
        return Curve(np.array(rounds, dtype=np.int64), *mean_and_error(values))

    def weightings(self) -> list[tuple[str, list[Row]]]:
        """The rows by how clients weigh, (title, rows) each; what the grid lacks is left out."""
        groups = []
        for models, weights in zip(WEIGHTINGS, WEIGHTS, strict=True):
            rows = [row for row in self.rows if row[0] in models]
            if rows:
                present = ", ".join(dict.fromkeys(model for model, _ in rows))
                groups.append((f"{present} ({weights})", rows))
        return groups

    def over_seeds(self) -> str:
        """What a mean is over, in words."""
        if len(self.seeds) == 1:
            return "one seed"
        return f"mean and standard error over {len(self.seeds)} seeds"

    def gaps(self, rows: Sequence[Row], diverged_title: str = "Diverged") -> list[str]:
        """What is missing of some rows, for the figure's foot: rows of which seeds diverged or have not run."""
        wanted = len(self.seeds)
        notes = []
        diverged = [f"{row_title(row)} ({self.diverged(row)}/{wanted})" for row in rows if self.diverged(row)]
        if diverged:
            notes.append(f"{diverged_title}: " + ", ".join(diverged))
        absent = [row_title(row) for row in rows if not self.of(row)]
        some = [
            f"{row_title(row)} ({len(self.of(row))}/{wanted} seeds)" for row in rows if 0 < len(self.of(row)) < wanted
        ]
        if len(absent) == len(rows):
            notes.append("No results yet.")
        elif absent:
            notes.append("No results yet: " + ", ".join(absent))
        if some:
            notes.append("Incomplete: " + ", ".join(some))
        return notes


def mean_and_error(values: Floats) -> tuple[Floats, Floats]:
    """values [S, T] -> mean [T] and standard error [T] (sample standard deviation / sqrt(S)); NaN with one seed."""
    seeds = len(values)
    mean: Floats = values.mean(axis=0)
    error: Floats = values.std(axis=0, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.full(values.shape[1:], np.nan)
    return mean, error


def row_title(row: Row) -> str:
    """A row's name: the model, and the rule where there is one."""
    model, rule = row
    return model if rule == NO_AGGREGATOR else f"{model} {rule}"
