"""docs/reproduction.md, made from the kept results below docs/reproduction and the text of its template.

In the template `{{cells}}` becomes the list of kept cells, `{{comparison VARIANT}}` and `{{claims VARIANT}}` the tables
of a variant (a folder below docs/reproduction), `{{missing}}` the planned cells that are not kept. No number is typed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import tabulate

from bflp.claims import check_all
from bflp.comparison import compare, comparison_table
from bflp.errors import DataError
from bflp.grid import Cell
from bflp.results import collect_archive, read_result
from bflp.tables import to_markdown

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reproduction"
# What is planned, most telling first: variant -> cells.
PLANNED: dict[str, tuple[str, ...]] = {
    "reference": (
        "fmnist/iid/10/FEDAVG/none/seed0",
        *(f"fmnist/iid/10/FVBWA/{rule}/seed0" for rule in ("EAA", "GAA", "AALV", "PPA", "CF")),
        "fmnist/noniid/10/FEDAVG/none/seed0",
        "fmnist/noniid/10/FVBWA/EAA/seed0",
        "fmnist/noniid/10/FVBWA/PPA/seed0",
        "fmnist/iid/100/FEDAVG/none/seed0",
        "fmnist/iid/100/FVBWA/EAA/seed0",
        "fmnist/iid/100/FVBWA/GAA/seed0",
        "cifar10/iid/10/FVBWA/GAA/seed0",
    ),
    "exact": ("fmnist/iid/10/FVBWA/EAA/seed0",),
    "project": ("fmnist/iid/10/FVBWA/EAA/seed0", "fmnist/iid/10/FVBWA/AALV/seed0"),
}


def page() -> str:
    """The page's text. Raises DataError for an unknown placeholder or a damaged result."""
    template = (FOLDER / "template.md").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)(?: (\w+))?\}\}", lambda match: _fill(match[1], match[2]), template)


def spread_curves() -> dict[str, list[tuple[int, float]]]:
    """(round, spread) of every kept variational cell, by "variant: dataset, partition, clients, rule"."""
    curves = {}
    for variant, cell, result in _kept():
        if cell.variational:
            name = f"{variant}: {cell.aggregator}"
            curves[name] = [(entry["round"], entry["spread"]) for entry in result["rounds"]]
    return curves


def _kept() -> list[tuple[str, Cell, dict[str, Any]]]:
    kept = []
    for file in sorted(FOLDER.glob("*/cells/**/seed*.json")):
        variant, path = file.relative_to(FOLDER).parts[0], file.relative_to(FOLDER / file.relative_to(FOLDER).parts[0])
        cell = Cell.parse(str(path.relative_to("cells").with_suffix("")))
        kept.append((variant, cell, read_result(file, cell)))
    return kept


def _fill(what: str, variant: str | None) -> str:
    if what == "cells":
        return _cells()
    if what == "missing":
        have = {(name, str(cell)) for name, cell, _ in _kept()}
        lines = [f"- {name}: `{cell}`" for name, cells in PLANNED.items() for cell in cells if (name, cell) not in have]
        return "\n".join(lines) or "Nothing."
    if what in ("comparison", "claims") and variant is not None:
        frame = collect_archive(FOLDER / variant / "cells")
        if what == "comparison":
            return to_markdown(comparison_table(compare(frame))).rstrip()
        return "\n".join(f"- **{verdict.outcome}**: {verdict.claim} ({verdict.detail})" for verdict in check_all(frame))
    raise DataError(f"{FOLDER}/template.md: unknown placeholder {what} {variant or ''}")


def _cells() -> str:
    rows = []
    for variant, cell, result in _kept():
        environment, seconds = result["environment"], result["timing"]["train_seconds"]
        rows.append(
            [
                variant,
                f"`{cell}`",
                len(seconds),
                f"{sum(seconds) / len(seconds):.1f}",
                f"{result['timing']['total_seconds'] / 60:.0f}",
                f"{environment['processes']} on {environment['cores']} cores, {environment['processor']}",
                f"`{result['fingerprint']}`",
            ]
        )
    headers = ["variant", "cell", "rounds", "s/round", "minutes", "processes", "fingerprint"]
    return tabulate.tabulate(rows, headers, tablefmt="pipe", disable_numparse=True)
