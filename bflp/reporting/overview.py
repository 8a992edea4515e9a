"""Pages about a run: its settings and versions, its cells with their times, and the times by row of the tables."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from bflp.datasets.registry import title as dataset_title
from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import CURVES
from bflp.grid.cell import Cell
from bflp.reporting.html import page, to_html
from bflp.reporting.summary import mean_entry
from bflp.reporting.table import Row, Table
from bflp.reporting.titles import aggregator_title, partition_title
from bflp.results.result import Result
from bflp.settings.schema import Settings

# File name to the title that the report shows.
PAGES = {
    "settings": "Settings and versions",
    "cells": "Cells: final numbers, times and versions",
    "timings": "Times by row of the tables",
}
VERSIONS = ("python", "torch", "numpy", "system", "processor", "cores", "device", "gpu", "processes")
TIMES = ("train_seconds", "aggregation_seconds", "evaluation_seconds")
# Cells with their records, as those of a block of figures: `.result` and `.evaluation`, which may be None.
Results = Sequence[tuple[Cell, Any]]


def make_pages(settings: Settings, results: Results) -> dict[str, str]:
    """The pages of PAGES as HTML. results: of the cells that have run, in the grid's order."""
    return {
        "settings": settings_page(settings, results),
        "cells": to_html(cells_table(results)),
        "timings": to_html(timings_table(results)),
    }


def environments(results: Iterable[Result]) -> list[tuple[dict[str, Any], int]]:
    """What cells ran with, by the names of VERSIONS, and how many of them; the most frequent first."""
    found = (result.environment.model_dump() for result in results)
    counted = Counter(tuple((name, environment.get(name)) for name in VERSIONS) for environment in found)
    return [(dict(environment), count) for environment, count in counted.most_common()]


def settings_page(settings: Settings, results: Results) -> str:
    """All settings as a config file would have them, and what the cells ran with."""
    items = "\n".join(
        f"<li>{count} of {len(results)} cells: "
        + html.escape(", ".join(f"{name} {value}" for name, value in environment.items() if value is not None))
        + "</li>"
        for environment, count in environments(record.result for _, record in results)
    )
    text = yaml.safe_dump(effective(settings), sort_keys=False, default_flow_style=None, width=110)
    return page(
        PAGES["settings"],
        f"<h2>Versions and machines</h2>\n<ul>\n{items}\n</ul>\n"
        f"<h2>Settings</h2>\n<p>Defaults included.</p>\n<pre>{html.escape(text)}</pre>",
    )


def effective(settings: Settings) -> dict[str, Any]:
    """All settings as a config file would have them, defaults included."""
    shown = settings.model_dump(mode="json")
    for dataset in settings.grid.datasets:
        augment = settings.augment(dataset)
        augmentation = augment.model_dump() if augment else None
        shown["datasets"][dataset] = {**shown["datasets"].get(dataset, {}), "augment": augmentation}
    return shown


def cells_table(results: Results) -> Table:
    """A row per cell."""
    rows: list[Row] = []
    for cell, record in results:
        result, final = record.result, (record.evaluation.final if record.evaluation else None) or {}
        timing, environment = result.timing, result.environment.model_dump()
        numbers = [_number(final.get(name), METRICS[name].digits) for name in CURVES]
        milliseconds = [_number(_mean(getattr(timing, name)), 1) for name in TIMES]
        run = [
            str(len(timing.train_seconds)),
            _number(timing.total_seconds, 1),
            ", ".join(map(str, environment["resumed_at"])),
            "" if result.diverged is None else f"round {result.diverged.round}",
            *(str(environment.get(name) or "") for name in ("processes", "device", "gpu", "processor")),
            *(str(environment[name]) for name in ("python", "torch", "numpy")),
            result.fingerprint,
        ]
        rows.append((_coordinates(cell), [*numbers, *milliseconds, *run]))
    return Table(
        name="cells",
        caption="Every cell: numbers of its final model; milliseconds per communication round of local training, "
        "aggregation and evaluation; wall clock of all its rounds; what it ran on. Code: fingerprint of all code that "
        "can change the result.",
        labels=("Data set", "Partition", "Clients", "Model", "Aggregator", "Seed"),
        groups=[
            ("Final model", len(CURVES)),
            ("Milliseconds per round", 3),
            ("Run", 4),
            ("Machine", 4),
            ("Versions", 4),
        ],
        columns=[
            *(METRICS[name].title for name in CURVES),
            *("Training", "Aggregation", "Evaluation"),
            *("Rounds", "Total (s)", "Went on after round", "Diverged"),
            *("Processes", "Device", "GPU", "Processor"),
            *("Python", "PyTorch", "NumPy", "Code"),
        ],
        blocks=[("", rows)],
    )


def timings_table(results: Results) -> Table:
    """A row per data set, set-up, model and aggregator: means over partitions and seeds."""
    groups: dict[tuple[str, ...], list[Any]] = {}
    for cell, record in results:
        data, _, clients, model, rule, _ = _coordinates(cell)
        groups.setdefault((data, clients, model, rule), []).append(record.result.timing)
    rows: list[Row] = []
    for names, timings in groups.items():
        means = [mean_entry([_mean(getattr(timing, name)) for timing in timings]) for name in TIMES]
        totals = [timing.total_seconds for timing in timings]
        rows.append((names, [str(len(timings)), *means, mean_entry(totals), _number(sum(totals) / 3600)]))
    return Table(
        name="timings",
        caption="Wall clock, mean ± standard error over the cells of a row: milliseconds per round of local "
        "training, aggregation and evaluation, and seconds of a whole cell.",
        labels=("Data set", "Clients", "Model", "Aggregator"),
        groups=[("", 1), ("Milliseconds per round", 3), ("", 2)],
        columns=["Cells", "Training", "Aggregation", "Evaluation", "Whole cell (s)", "All cells (h)"],
        blocks=[("", rows)],
    )


def _coordinates(cell: Cell) -> tuple[str, ...]:
    partition, rule = partition_title(cell.partition), aggregator_title(cell.aggregator)
    return dataset_title(cell.dataset), partition, str(cell.clients), cell.model, rule, str(cell.seed)


def _mean(seconds: Sequence[float]) -> float | None:
    """Mean in milliseconds."""
    return 1000 * sum(seconds) / len(seconds) if seconds else None


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:z.{digits}f}"
