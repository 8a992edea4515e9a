"""A block of results: what one figure shows, cells of the same data set, partition and set-up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bflp.reporting.titles import block_title, row_title

if TYPE_CHECKING:
    from bflp.grid.plan import Plan

Row = tuple[str, str]  # model, aggregator
Floats = NDArray[np.float64]
# A cell's record: `.result` (rounds, diverged, environment, timing) and `.evaluation` (final, reliability, clients),
# which is None where it is missing or out of date.
Record = Any

# Models that weigh their clients alike share a panel: what differs in it is the method alone.
WEIGHTS = {"equal": "equal weights", "data": "weights by data size"}


@dataclass(frozen=True)
class Curve:
    """A metric over rounds [T]: mean over the seeds that have run, and its standard error (NaN with one seed)."""

    rounds: NDArray[np.int64]
    mean: Floats
    error: Floats


@dataclass(frozen=True)
class Block:
    """The results of a block, by row of the tables and seed; what has not run is missing.

    rows, seeds: all that are wanted, in the tables' order; weights: how the clients of each model weigh, "equal" or
    "data"; posterior_rows: the rows of models with a posterior; results: (model, aggregator) -> seed -> record;
    label_counts: training samples per client and label [C, L] with the seed `label_seed`, or None; metrics: of the
    tables; sweeps: name -> its rows -> their values by setting; chosen: the rows that those that choose show.
    """

    title: str
    rows: Sequence[Row]
    seeds: Sequence[int]
    weights: Mapping[str, str]
    posterior_rows: Sequence[Row] = ()
    results: Mapping[Row, Mapping[int, Record]] = field(default_factory=dict)
    label_counts: NDArray[np.int64] | None = None
    label_seed: int = 0
    metrics: Sequence[str] = ()
    sweeps: Mapping[str, Mapping[Row, Mapping[str, Any]]] = field(default_factory=dict)
    chosen: Collection[Row] = ()

    @classmethod
    def planned(
        cls,
        plan: Plan,
        coordinates: tuple[str, str, str],
        results: Mapping[Row, Mapping[int, Record]],
        label_counts: NDArray[np.int64] | None = None,
        chosen: Mapping[Row, Row] | None = None,
    ) -> Block:
        """A block of a grid, coordinates: (dataset, partition, clients), with the results that are there.

        chosen: the row that a sweep shows, for each rule.
        """
        settings, rows, chosen = plan.settings, plan.shown_rows, chosen or {}
        return cls(
            block_title(*coordinates, settings.setups[coordinates[2]].clients),
            rows,
            settings.grid.seeds,
            weights_of(plan),
            [row for row in rows if plan.has_posterior(row[0])],
            {**results, **{shown: results[row] for shown, row in chosen.items()}},
            label_counts,
            plan.partition_seed(coordinates[1], settings.grid.seeds[0]),
            settings.tables.metrics,
            {name: {row: of[row[0]] for row in plan.rows if row[0] in of} for name, of in plan.sweeps.items()},
            list(chosen.values()),
        )

    def of(self, row: Row) -> list[Record]:
        """The records of a row that are there, in the order of the seeds."""
        found = self.results.get(row, {})
        return [found[seed] for seed in self.seeds if seed in found]

    def diverged(self, row: Row) -> int:
        """How many of a row's seeds diverged."""
        return sum(record.result.diverged is not None for record in self.of(row))

    def evaluations(self, row: Row) -> list[Any]:
        """The evaluations of a row's final models; none where, as in the tables, any seed diverged, since the seeds
        that happened to survive would flatter the row."""
        return [] if self.diverged(row) else [record.evaluation for record in self.of(row) if record.evaluation]

    def final(self, row: Row, metric: str) -> tuple[float, float]:
        """Mean and standard error over seeds of a metric of the final models; NaN where there is none."""
        values = [evaluation.metric(metric) for evaluation in self.evaluations(row)]
        if not values:
            return float("nan"), float("nan")
        mean, error = mean_and_error(np.array(values, dtype=np.float64))
        return float(mean), float(error)

    def curve(self, row: Row, metric: str) -> Curve:
        """A metric over the rounds that all seeds that have run evaluated; one that diverged ends its row's curve."""
        histories = [
            {entry.round: value for entry in record.result.rounds if (value := getattr(entry, metric)) is not None}
            for record in self.of(row)
        ]
        rounds = sorted(set.intersection(*map(set, histories))) if histories else []
        if not rounds:
            return Curve(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
        values = np.array([[history[round_] for round_ in rounds] for history in histories], dtype=np.float64)
        return Curve(np.array(rounds, dtype=np.int64), *mean_and_error(values))

    def ece_bins(self) -> list[int]:
        """With how many bins the ECE of the curves was measured; several numbers where cells differ."""
        records = [record for row in self.rows for record in self.of(row)]
        return sorted({record.result.environment.curve_ece_bins for record in records})

    def over_seeds(self) -> str:
        """What a mean is over, in words."""
        if len(self.seeds) == 1:
            return "one seed"
        return f"mean and standard error over {len(self.seeds)} seeds"

    def gaps(self, rows: Sequence[Row], diverged_title: str = "Diverged") -> list[str]:
        """What is missing of some rows, for the figure's foot: rows of which seeds diverged or have not run."""
        wanted = len(self.seeds)
        diverged = [f"{row_title(row)} ({self.diverged(row)}/{wanted})" for row in rows if self.diverged(row)]
        absent = [row_title(row) for row in rows if not self.of(row)]
        some = [
            f"{row_title(row)} ({len(self.of(row))}/{wanted} seeds)" for row in rows if 0 < len(self.of(row)) < wanted
        ]
        if len(absent) == len(rows):
            return ["No results yet."]
        lists = {diverged_title: diverged, "No results yet": absent, "Incomplete": some}
        return [f"{title}: {', '.join(names)}" for title, names in lists.items() if names]


def weights_of(plan: Plan) -> dict[str, str]:
    """How the clients of each model of a grid weigh, of what is trained and what is shown: "equal" or "data"."""
    return {model: plan.method(model).weights for model, _ in (*plan.shown_rows, *plan.rows)}


def grouped(rows: Sequence[Row], weights: Mapping[str, str]) -> list[tuple[str, list[Row]]]:
    """Rows by how their clients weigh, (title, rows) each."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: list(WEIGHTS).index(weights[row[0]])):
        groups.setdefault(WEIGHTS[weights[row[0]]], []).append(row)
    return [
        (f"{', '.join(dict.fromkeys(model for model, _ in rows))} ({title})", rows) for title, rows in groups.items()
    ]


def mean_and_error(values: Floats) -> tuple[Floats, Floats]:
    """values [S, ...] -> mean [...] and standard error [...] (deviation of the sample / sqrt(S)); NaN with one seed."""
    seeds = len(values)
    mean: Floats = values.mean(axis=0)
    error: Floats = values.std(axis=0, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.full(values.shape[1:], np.nan)
    return mean, error
