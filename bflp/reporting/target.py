"""The table of rounds and megabytes to a target accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from bflp.datasets.registry import title as dataset_title
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.reporting.summary import bold_best, mean_entry
from bflp.reporting.table import Entry, Table
from bflp.reporting.titles import federation_title, row_labels
from bflp.results.result import Result


class Reached(NamedTuple):
    """The first evaluated round with the target accuracy, and what all clients had sent and received by its end."""

    rounds: int
    megabytes: float | None


def reached(result: Result, target: float) -> Reached | None:
    """None where no evaluated round has the accuracy, and for a run that diverged, whatever it had before."""
    first = next((entry.round for entry in result.rounds if entry.accuracy >= target), None)
    if first is None or result.diverged:
        return None
    return Reached(first, result.megabytes(first))


def target_table(plan: Plan, results: Mapping[Cell, Result]) -> Table:
    """A block per partition and set-up, two columns for each data set. results: of the cells that have run."""
    settings, grid, target = plan.settings, plan.settings.grid, plan.settings.tables.target_accuracy
    assert target is not None
    keys = plan.shown_rows
    blocks = []
    for partition in grid.partitions:
        for clients in grid.clients:
            columns = []
            for dataset in grid.datasets:
                cells = [[Cell(dataset, partition, clients, *row, seed) for seed in grid.seeds] for row in keys]
                found = [[reached(results[cell], target) for cell in row if cell in results] for row in cells]
                for number in Reached._fields:
                    values = [[getattr(each, number) for each in row if each] for row in found]
                    columns.append(_bold([mean_entry(row, len(grid.seeds), digits=1) for row in values]))
            rows = [(row_labels(key), values) for key, values in zip(keys, zip(*columns, strict=True), strict=True)]
            blocks.append((federation_title(partition, clients, settings.setups[clients].clients), rows))
    seeds = len(grid.seeds)
    over = "one seed." if seeds == 1 else f"mean ± standard error over those of {seeds} seeds that reach it."
    return Table(
        name="target",
        caption=f"The first evaluated round with an accuracy of at least {target:g}%, and the megabytes (MB) that all "
        f"clients together sent and received until then: {over} n/m: n of m seeds reach it; a dash: none does; a run "
        "that diverges does not. Bold: "
        "within the best row's standard error of the best mean, of the rows that reach it with all seeds.",
        labels=("", "Model", "Aggregator"),
        groups=[(dataset_title(dataset), 2) for dataset in grid.datasets],
        columns=["Rounds", "MB"] * len(grid.datasets),
        blocks=blocks,
    )


def _bold(entries: Sequence[Entry]) -> list[Entry]:
    whole = [entry if entry.seeds == entry.wanted else Entry() for entry in entries]
    flags = bold_best([each.mean for each in whole], [each.standard_error for each in whole], higher_is_better=False)
    return [replace(entry, bold=bold) for entry, bold in zip(entries, flags, strict=True)]
