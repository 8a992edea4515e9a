"""Pages about a run: its settings and versions, its cells with their times, and the times by row of the tables."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from bflp.datasets.registry import title
from bflp.grid.plan import NO_AGGREGATOR, Cell
from bflp.reporting.html import page, to_html
from bflp.reporting.tables import Entry, Table
from bflp.reporting.titles import partition_title
from bflp.results.frame import TIMES
from bflp.settings.schema import Settings

# File name to the title that the report shows.
PAGES = {
    "settings": "Settings and versions",
    "cells": "Cells: final numbers, times and versions",
    "timings": "Times by row of the tables",
}
_VERSIONS = ("python", "torch", "numpy", "system", "processor", "cores", "device", "gpu", "processes")
Results = Sequence[tuple[Cell, Mapping[str, Any]]]


def make_pages(settings: Settings, results: Results) -> dict[str, str]:
    """The pages of PAGES as HTML. results: of the cells that have run, in the grid's order."""
    return {
        "settings": settings_page(settings, results),
        "cells": to_html(cells_table(results)),
        "timings": to_html(timings_table(results)),
    }


def settings_page(settings: Settings, results: Results) -> str:
    """All settings as a config file would have them, and what the cells ran with."""
    environments = Counter(
        tuple((name, str(result["environment"].get(name))) for name in _VERSIONS) for _, result in results
    )
    items = "\n".join(
        f"<li>{count} of {len(results)} cells: "
        + html.escape(", ".join(f"{name} {value}" for name, value in environment if value != "None"))
        + "</li>"
        for environment, count in environments.most_common()
    )
    shown = settings.model_dump(mode="json")
    shown["setups"] = {int(clients): setup for clients, setup in shown["setups"].items()}
    for dataset in settings.grid.datasets:
        augment = settings.augment(dataset)
        augmentation = augment.model_dump() if augment else None
        shown["datasets"][dataset] = {**shown["datasets"].get(dataset, {}), "augment": augmentation}
    text = yaml.safe_dump(shown, sort_keys=False, default_flow_style=None, width=110)
    return page(
        PAGES["settings"],
        f"<h2>Versions and machines</h2>\n<ul>\n{items}\n</ul>\n"
        f"<h2>Settings</h2>\n<p>Defaults included.</p>\n<pre>{html.escape(text)}</pre>",
    )


def cells_table(results: Results) -> Table:
    """A row per cell."""
    rows: list[tuple[Sequence[str], Sequence[Entry | str]]] = []
    for cell, result in results:
        final, timing, environment = result["final"] or {}, result["timing"], result["environment"]
        numbers = [_number(final.get(name)) for name in ("accuracy", "ece", "nll", "spread")]
        milliseconds = [_number(_mean(timing[f"{name}_seconds"]), 1) for name in TIMES]
        run = [
            str(len(timing["train_seconds"])),
            _number(timing["total_seconds"], 1),
            ", ".join(map(str, environment["resumed_at"])),
            "" if result["diverged"] is None else f"round {result['diverged']['round']}",
            *(str(environment.get(name) or "") for name in ("processes", "device", "gpu", "processor")),
            *(str(environment[name]) for name in ("python", "torch", "numpy")),
            result["fingerprint"],
        ]
        rows.append((_coordinates(cell), [*numbers, *milliseconds, *run]))
    return Table(
        name="cells",
        caption="Every cell: numbers of its final model; milliseconds per communication round of local training, "
        "aggregation and evaluation; wall clock of all its rounds; what it ran on. Code: fingerprint of all code that "
        "can change the result.",
        labels=("Data set", "Partition", "Clients", "Model", "Aggregator", "Seed"),
        groups=[("Final model", 4), ("Milliseconds per round", 3), ("Run", 4), ("Machine", 4), ("Versions", 4)],
        columns=[
            *("Accuracy (%)", "ECE (%)", "NLL", "Spread"),
            *("Training", "Aggregation", "Evaluation"),
            *("Rounds", "Total (s)", "Went on after round", "Diverged"),
            *("Processes", "Device", "GPU", "Processor"),
            *("Python", "PyTorch", "NumPy", "Code"),
        ],
        blocks=[("", rows)],
    )


def timings_table(results: Results) -> Table:
    """A row per data set, number of clients, model and aggregator: means over partitions and seeds."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell, result in results:
        data, _, clients, model, rule, _ = _coordinates(cell)
        groups.setdefault((data, clients, model, rule), []).append(result["timing"])
    rows: list[tuple[Sequence[str], Sequence[Entry | str]]] = []
    for names, timings in groups.items():
        means = [_entry([_mean(timing[f"{name}_seconds"]) for timing in timings]) for name in TIMES]
        totals = [float(timing["total_seconds"]) for timing in timings]
        rows.append((names, [str(len(timings)), *means, _entry(totals), _number(sum(totals) / 3600)]))
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
    rule = "N/A" if cell.aggregator == NO_AGGREGATOR else cell.aggregator
    partition = partition_title(cell.partition)
    return title(cell.dataset), partition, str(cell.clients), cell.model, rule, str(cell.seed)


def _mean(seconds: Sequence[float]) -> float | None:
    """Mean in milliseconds."""
    return 1000 * sum(seconds) / len(seconds) if seconds else None


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _entry(values: Iterable[float | None]) -> Entry:
    present = np.array([value for value in values if value is not None])
    if not len(present):
        return Entry()
    error = float(present.std(ddof=1) / np.sqrt(len(present))) if len(present) > 1 else float("nan")
    return Entry(float(present.mean()), error, len(present), len(present))
