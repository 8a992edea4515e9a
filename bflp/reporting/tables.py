"""The tables of a grid: final numbers, spreads, times per round, data sets."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bflp.datasets.registry import title as dataset_title
from bflp.engine.metrics.registry import METRICS
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.reporting.chosen_rounds import in_words
from bflp.reporting.statistics.analysis import differing
from bflp.reporting.statistics.paired import FEWEST_PAIRS
from bflp.reporting.summary import KEYS, Summary, bold_best, bold_lowest, marked
from bflp.reporting.table import DIFFERS, Entry, Row, Table, TableBlock
from bflp.reporting.target import target_table
from bflp.reporting.titles import block_title, clients_title, partition_title, reference_row, row_labels, row_title
from bflp.results.result import Result
from bflp.results.sweeps import shown, with_chosen

if TYPE_CHECKING:
    import pandas as pd


def make_tables(
    plan: Plan,
    frame: pd.DataFrame,
    summaries: Mapping[str, Mapping[str, Any]],
    results: Mapping[Cell, Result] = MappingProxyType({}),
) -> list[Table]:
    """All tables of a grid, those of `titles.table_titles`.

    frame: the tidy results; summaries: of the data sets, by name (may lack some); results: for the target accuracy.
    """
    grid = plan.settings.grid
    summary = Summary(shown(frame), len(grid.seeds))
    marks = _marks(plan, shown(frame)) if plan.settings.tables.mark_differences else set()
    tables = [results_table(plan, summary, clients, marks) for clients in grid.clients]
    if plan.settings.tables.target_accuracy is not None:
        tables.append(target_table(plan, with_chosen(plan, frame, results)))
    if any(plan.has_posterior(model) for model, _ in plan.shown_rows):
        tables.append(spread_table(plan, summary))
    if plan.choosing:
        tables.append(chosen_table(plan, frame))
    return [*tables, datasets_table(plan, summaries)]


def results_table(plan: Plan, summary: Summary, clients: str, marks: Container[tuple[str, ...]] = ()) -> Table:
    """The chosen metrics for one set-up: a block per partition, a group of columns per data set.

    marks: (data set, partition, set-up, model, aggregator, metric) of what differs from the reference row.
    """
    grid, rows, setup = plan.settings.grid, plan.shown_rows, plan.settings.setups[clients]
    metrics = [METRICS[name] for name in plan.settings.tables.metrics]
    blocks = []
    for partition in grid.partitions:
        columns = [
            marked(
                [_entry(summary, (dataset, partition, clients, *row), metric.name, marks) for row in rows],
                partial(bold_best, higher_is_better=metric.higher_is_better),
            )
            for dataset in grid.datasets
            for metric in metrics
        ]
        blocks.append((partition_title(partition), _rows(rows, columns)))
    return Table(
        name=f"results{clients}",
        caption=f"{clients_title(clients, setup.clients)}, {100 * setup.fraction:g}% active per round, "
        f"{setup.rounds} rounds{_of_rounds(plan)}{_bins(plan, summary)}: {_over_seeds(grid.seeds)} "
        f"Bold: within the best row's standard error of the best mean.{_about_marks(plan)}" + _about_gaps(blocks),
        labels=("", "Model", "Aggregator"),
        groups=[(dataset_title(dataset), len(metrics)) for dataset in grid.datasets],
        columns=[metric.title for _ in grid.datasets for metric in metrics],
        blocks=blocks,
    )


def spread_table(plan: Plan, summary: Summary) -> Table:
    """The spread of the final posteriors: a block per partition, a group of columns per set-up."""
    grid = plan.settings.grid
    blocks = []
    for partition in grid.partitions:
        rows: list[Row] = []
        for model in filter(plan.has_posterior, dict.fromkeys(model for model, _ in plan.shown_rows)):
            keys = [row for row in plan.shown_rows if row[0] == model]
            columns = [
                marked([summary.entry((dataset, partition, clients, *key), "spread") for key in keys], bold_lowest)
                for clients in grid.clients
                for dataset in grid.datasets
            ]
            rows.extend(_rows(keys, columns))
        blocks.append((partition_title(partition), rows))
    return Table(
        name="spread",
        caption="Spread (Euclidean norm of all standard deviations) of the "
        f"{'global posterior' + _of_rounds(plan) if in_words(plan.settings.tables) else 'final global posterior'}: "
        f"{_over_seeds(grid.seeds)} Bold: the three lowest of a model's rules." + _about_gaps(blocks),
        labels=("", "Model", "Aggregator"),
        groups=[(title, len(grid.datasets)) for title in _setup_titles(plan)],
        columns=[dataset_title(dataset) for _ in grid.clients for dataset in grid.datasets],
        blocks=blocks,
    )


def chosen_table(plan: Plan, frame: pd.DataFrame) -> Table:
    """What each sweep that chooses chose, and by what: of each of its rows the metric on held-out samples."""
    grid, blocks = plan.settings.grid, []
    cells = dict(iter(frame.groupby(KEYS)))
    for partition in grid.partitions:
        rows: list[Row] = []
        for name, metric in plan.choosing.items():
            for rule in [rule for model, rule in plan.shown_rows if model == name]:
                for model in plan.sweeps[name]:
                    keys = [(data, partition, setup, model, rule) for setup in grid.clients for data in grid.datasets]
                    values = [_held_out(cells.get(key), metric, len(grid.seeds)) for key in keys]
                    rows.append((row_labels((model, rule)), [METRICS[metric].title, *values]))
        blocks.append((partition_title(partition), rows))
    return Table(
        name="chosen",
        caption="What sweeps choose by: metrics of the final models on the samples that are held out of all clients, "
        f"never on test data; {_over_seeds(grid.seeds)} Bold: the chosen value, that of the best mean."
        + _about_gaps(blocks),
        labels=("", "Model", "Aggregator"),
        groups=[("", 1), *((title, len(grid.datasets)) for title in _setup_titles(plan))],
        columns=["Chosen by", *(dataset_title(dataset) for _ in grid.clients for dataset in grid.datasets)],
        blocks=blocks,
    )


def _held_out(cells: pd.DataFrame | None, metric: str, seeds: int) -> Entry:
    if cells is None:
        return Entry(wanted=seeds)
    if diverged := int(cells["diverged"].astype(bool).sum()):
        return Entry(wanted=seeds, diverged=diverged)
    mean, error = (float(number) for number in cells[f"held_out_{metric}"].astype(float).agg(["mean", "sem"]))
    chosen = bool((cells["chosen"] == "yes").any())
    return Entry(mean, error, len(cells), seeds, chosen, digits=METRICS[metric].digits)


def round_time_table(plan: Plan, frame: pd.DataFrame) -> Table:
    """Training time per round: a column per number of processes, and the time of aggregation.

    frame: dataset, partition, clients, the same of all rows; model, aggregator, processes, seconds_per_round,
    standard_error, aggregation_seconds.
    """
    measured = plan.settings.round_time
    rows: list[Row] = []
    for (model, rule), group in frame.groupby(["model", "aggregator"], sort=False):
        times = group.set_index("processes").loc[measured.processes, ["seconds_per_round", "standard_error"]]
        entries = [Entry(float(mean), float(error), 1, 1) for mean, error in times.to_numpy()]
        aggregation = f"{1000 * group['aggregation_seconds'].mean():.1f}"
        rows.append((row_labels((str(model), str(rule))), [*entries, aggregation]))
    dataset, partition, clients = frame.iloc[0][KEYS[:3]]
    return Table(
        name="round_time",
        caption=f"Seconds of local training per communication round by number of processes, and milliseconds of "
        f"aggregation: {block_title(dataset, partition, clients, plan.settings.setups[clients].clients)}; "
        f"mean ± standard error over {measured.rounds} rounds after one to warm up.",
        labels=("", "Model", "Aggregator"),
        groups=[("Processes", len(measured.processes)), ("", 1)],
        columns=[*map(str, measured.processes), "Aggregation (ms)"],
        blocks=[("", rows)],
    )


def datasets_table(plan: Plan, summaries: Mapping[str, Mapping[str, Any]]) -> Table:
    """The data sets and how many training samples a client holds on average."""
    settings = plan.settings
    rows: list[Row] = []
    for name in settings.grid.datasets:
        values: list[Entry | str] = [Entry()] * (4 + len(settings.grid.clients))
        if found := summaries.get(name):
            size = found["train_size"]
            shape = "×".join(map(str, found["input_shape"]))
            per_client = [f"{size / settings.setups[clients].clients:.0f}" for clients in settings.grid.clients]
            values = [shape, *map(str, (found["labels"], size, found["test_size"])), *per_client]
        rows.append(([dataset_title(name)], values))
    return Table(
        name="datasets",
        caption="Data sets, and the mean number of training samples per client, before any are held out.",
        labels=("Data set",),
        groups=[("", 4), ("Samples per client", len(settings.grid.clients))],
        columns=["Image", "Labels", "Training", "Test", *_setup_titles(plan)],
        blocks=[("", rows)],
    )


def _marks(plan: Plan, frame: pd.DataFrame) -> set[tuple[str, ...]]:
    settings, rows = plan.settings, plan.shown_rows
    reference = reference_row(settings.statistics.reference, rows)
    return differing(frame, rows, plan.blocks(), settings.grid.seeds, reference, settings.tables.metrics)


def _entry(summary: Summary, key: tuple[str, ...], metric: str, marks: Container[tuple[str, ...]]) -> Entry:
    return replace(summary.entry(key, metric), differs=(*key, metric) in marks)


def _about_marks(plan: Plan) -> str:
    """What a caption says of the marks, whether or not there is one."""
    if not plan.settings.tables.mark_differences:
        return ""
    reference = plan.shown_rows[reference_row(plan.settings.statistics.reference, plan.shown_rows)]
    return (
        f" {DIFFERS}: the 95% t interval of the difference to {row_title(reference)}, paired by seed, "
        f"excludes 0 (from {FEWEST_PAIRS} pairs on; not corrected for how many numbers are compared)."
    )


def _of_rounds(plan: Plan) -> str:
    """What a caption says where numbers are not of the final model."""
    words = in_words(plan.settings.tables)
    return f", {words}" if words else ""


def _bins(plan: Plan, summary: Summary) -> str:
    """What a caption says of the ECE of curves, whose bins are those that it was measured with."""
    shown = "ece" in plan.settings.tables.metrics and summary.ece_bins
    return f" (ECE: {' or '.join(map(str, summary.ece_bins))} bins)" if shown else ""


def _setup_titles(plan: Plan) -> list[str]:
    return [clients_title(name, plan.settings.setups[name].clients) for name in plan.settings.grid.clients]


def _rows(keys: Sequence[tuple[str, str]], columns: Sequence[Sequence[Entry]]) -> list[Row]:
    return [(row_labels(key), values) for key, values in zip(keys, zip(*columns, strict=True), strict=True)]


def _about_gaps(blocks: Iterable[TableBlock]) -> str:
    """What a caption says of entries without their full number of seeds."""
    entries = [entry for _, rows in blocks for _, values in rows for entry in values if isinstance(entry, Entry)]
    diverged = any(entry.diverged for entry in entries)
    missing = any(entry.seeds < entry.wanted and not entry.diverged for entry in entries)
    return (" n/m: only n of m seeds have run; a dash: none has." if missing else "") + (
        " diverged (n/m): training diverged with n of m seeds." if diverged else ""
    )


def _over_seeds(seeds: Sequence[int]) -> str:
    return "one seed." if len(seeds) == 1 else f"mean ± standard error over {len(seeds)} seeds."
