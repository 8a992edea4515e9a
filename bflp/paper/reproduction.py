"""docs/reproduction.md, made from the kept results below docs/reproduction and the text of its template.

In the template `{{cells}}` becomes the list of kept cells, `{{missing}}` that of the planned cells that are not kept,
`{{variants}}` the cells that were run in more than one variant, `{{without_data}}` spreads beside those of cells
without data; `{{comparison VARIANT}}`, `{{marked VARIANT}}`, `{{late VARIANT}}` and `{{claims VARIANT}}` what one
variant says, a folder below docs/reproduction. No number is typed.
"""

from __future__ import annotations

import math
import re
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import tabulate

from bflp.engine.predictions import CURVES
from bflp.errors import DataError
from bflp.grid.cell import Cell
from bflp.paper.claims import check_all
from bflp.paper.comparison import KEYS, compare, comparison_table, published, summary
from bflp.paper.spread_without_data import covers, spread_without_data
from bflp.reporting.markdown import to_markdown
from bflp.results.frame import Finished, frame, read_folder
from bflp.results.result import Result

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproduction"
_RULES = ("EAA", "GAA", "AALV", "PPA", "CF")
# What is planned, most telling first: variant -> cells.
PLANNED: dict[str, tuple[str, ...]] = {
    "reference": (
        "fmnist/iid/10/FED/none/seed0",
        "fmnist/iid/10/FEDAVG/none/seed0",
        *(f"fmnist/iid/10/FVBWA/{rule}/seed0" for rule in _RULES),
        "fmnist/noniid/10/FEDAVG/none/seed0",
        "fmnist/noniid/10/FVBWA/EAA/seed0",
        "fmnist/noniid/10/FVBWA/PPA/seed0",
        "fmnist/iid/100/FEDAVG/none/seed0",
        "fmnist/iid/100/FVBWA/EAA/seed0",
        "fmnist/iid/100/FVBWA/GAA/seed0",
        "cifar10/iid/10/FVBWA/GAA/seed0",
        *(f"fmnist/iid/10/FVBWA/EAA/seed{seed}" for seed in range(1, 5)),
        "fmnist/iid/10/FVBWA/AALV/seed1",
    ),
    "exact": ("fmnist/iid/10/FVBWA/EAA/seed0",),
    "project": ("fmnist/iid/10/FVBWA/EAA/seed0", "fmnist/iid/10/FVBWA/AALV/seed0"),
}
LATE_ROUNDS = 20
Kept = tuple[str, Cell, Result]  # variant, cell, result


def page() -> str:
    """The page's text. Raises DataError for an unknown placeholder or a damaged result."""
    template = (FOLDER / "template.md").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)(?: (\w+))?\}\}", lambda match: _fill(match[1], match[2]), template)


@cache
def archive(variant: str) -> list[Finished]:
    """A variant's kept results with their evaluations."""
    return read_folder(FOLDER / variant)


def kept() -> list[Kept]:
    """All kept results, by variant and path."""
    return [(variant, cell, result) for variant in PLANNED for cell, result, _ in archive(variant)]


def compared(variant: str) -> pd.DataFrame:
    """A variant's numbers beside the published ones, as from `bflp.paper.comparison.compare`."""
    return compare(frame(archive(variant)))


def _fill(what: str, variant: str | None) -> str:
    if what == "cells":
        return _cells()
    if what == "missing":
        have = {(name, str(cell)) for name, cell, _ in kept()}
        lines = [f"- {name}: `{cell}`" for name, cells in PLANNED.items() for cell in cells if (name, cell) not in have]
        return "\n".join(lines) or "Nothing."
    if what == "variants":
        return _variants()
    if what == "without_data":
        return _without_data()
    if variant in PLANNED and what in ("comparison", "marked", "late", "claims"):
        if all(name != variant for name, _, _ in kept()):
            return "No cell of this variant is kept."
        if what == "comparison":
            return to_markdown(comparison_table(compared(variant))).rstrip()
        if what == "marked":
            counts = summary(compared(variant))
            return f"{counts['marked']} of {counts['compared']}"
        if what == "late":
            return _late(variant)
        # Without times: the cells ran on different machines, and some beside other programs.
        verdicts = check_all(frame(archive(variant)).assign(train_seconds=math.nan))
        return "\n".join(f"- **{verdict.outcome}**: {verdict.claim} ({verdict.detail})" for verdict in verdicts)
    raise DataError(f"{FOLDER}/template.md: unknown placeholder {what} {variant or ''}")


def _cells() -> str:
    rows = []
    for variant, cell, result in kept():
        environment, seconds = result.environment.model_dump(), result.timing.train_seconds
        rows.append(
            [
                variant,
                f"`{cell}`",
                len(seconds),
                f"{sum(seconds) / len(seconds):.1f}",
                environment["processes"],
                environment.get("gpu") or f"{environment['processor']}, {environment['cores']} cores",
                environment["torch"],
                f"`{result.fingerprint[:12]}`",
            ]
        )
    headers = ["variant", "cell", "rounds", "s/round", "processes", "machine", "torch", "fingerprint"]
    return tabulate.tabulate(rows, headers, tablefmt="pipe", disable_numparse=True)


def _late(wanted: str) -> str:
    """How much the accuracy moves from round to round at the end: what a single seed's last round leaves to chance."""
    rows = []
    for variant, cell, result in kept():
        if variant == wanted:
            late = [entry.accuracy for entry in result.rounds][-LATE_ROUNDS:]
            mean, deviation = statistics.mean(late), statistics.stdev(late)
            rows.append([f"`{cell}`", _number(late[-1]), _number(mean), _number(deviation)])
    headers = ["cell", "accuracy %, last round", f"mean of the last {LATE_ROUNDS} rounds", "standard deviation"]
    return tabulate.tabulate(rows, headers, tablefmt="pipe", disable_numparse=True)


def _variants() -> str:
    by_cell: dict[Cell, list[tuple[str, Result]]] = {}
    for variant, cell, result in kept():
        by_cell.setdefault(cell, []).append((variant, result))
    table = published().pivot_table(index=KEYS, columns="metric", values="published")
    theirs: dict[Any, dict[Any, float]] = table.to_dict("index")
    rows = []
    for cell, results in by_cell.items():
        if len(results) > 1:
            name = f"{cell.model} {cell.aggregator}"
            row = theirs[cell.dataset, cell.partition, cell.clients, cell.model, cell.aggregator]
            rows.append([name, "published", *(_number(row[metric]) for metric in CURVES)])
            for variant, result in results:
                rows.append([name, variant, *(_number(getattr(result.rounds[-1], metric)) for metric in CURVES)])
    headers = ["row", "arithmetic", "accuracy %", "ECE %", "NLL", "spread"]
    return tabulate.tabulate(rows, headers, tablefmt="pipe", disable_numparse=True)


def _without_data() -> str:
    """The spreads beside those of a cell without data, where these can be had."""
    rows = []
    for variant, cell, result in kept():
        if covers(cell):
            without = spread_without_data(cell, result.settings)
            measured = [entry.spread or math.nan for entry in result.rounds]
            farthest = max(abs(one / other - 1) for one, other in zip(without, measured, strict=True))
            rows.append([variant, f"`{cell}`", _number(measured[-1]), _number(without[-1]), f"{100 * farthest:.2f}"])
    headers = ["variant", "cell", "spread", "without data", "largest difference in any round, %"]
    return tabulate.tabulate(rows, headers, tablefmt="pipe", disable_numparse=True)


def _number(value: float) -> str:
    return "not published" if math.isnan(value) else f"{value:.2f}"
