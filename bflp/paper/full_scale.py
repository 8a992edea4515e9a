"""The full-scale results that are kept below docs/reproduction, and those that are planned."""

from __future__ import annotations

import math
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import tabulate

from bflp.grid.cell import Cell
from bflp.paper.comparison import compare, set_ups
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
        *(f"fmnist/noniid/10/FVBWA/{rule}/seed0" for rule in _RULES),
        "fmnist/noniid/10/FVBA/EAA/seed0",
        "fmnist/iid/100/FEDAVG/none/seed0",
        *(f"fmnist/{partition}/100/FVBWA/{rule}/seed0" for partition in ("iid", "noniid") for rule in _RULES),
        "cifar10/iid/10/FVBWA/GAA/seed0",
        *(f"cifar10/noniid/10/FVBWA/{rule}/seed0" for rule in ("EAA", "AALV", "PPA")),
        *(f"fmnist/iid/10/FVBWA/EAA/seed{seed}" for seed in range(1, 5)),
        "fmnist/iid/10/FVBWA/AALV/seed1",
        "fmnist/iid-of-seed4/10/FVBWA/EAA/seed1",
        "fmnist/iid-of-seed1/10/FVBWA/EAA/seed4",
        "cifar10/noniid-of-seed1/10/FVBWA/AALV/seed0",
    ),
    "exact": (
        "fmnist/iid/10/FVBWA/EAA/seed0",
        "fmnist/iid/10/FVBWA-MLP/EAA/seed0",
        *(f"fmnist/noniid/10/{model}/none/seed0" for model in ("SCAFFOLD", "FEDPROX", "FEDNOVA")),
        *(f"cifar10/noniid/10/{model}/none/seed0" for model in ("SCAFFOLD", "FEDAVG", "FEDPROX", "FEDNOVA")),
        *(f"cifar10/noniid/10/FEDAVG/none/seed{seed}" for seed in (1, 2)),
        "cifar10/noniid-of-seed1/10/FEDAVG/none/seed0",
    ),
    "project": ("fmnist/iid/10/FVBWA/EAA/seed0", "fmnist/iid/10/FVBWA/AALV/seed0"),
}
LATE_ROUNDS = 20
END = ["accuracy %, last round", f"last {LATE_ROUNDS} rounds, ± standard deviation"]
Kept = tuple[str, Cell, Result]  # variant, cell, result


@cache
def archive(variant: str) -> list[Finished]:
    """A variant's kept results with their evaluations."""
    return read_folder(FOLDER / variant)


def kept() -> list[Kept]:
    """All kept results, by variant and path."""
    return [(variant, cell, result) for variant in PLANNED for cell, result, _ in archive(variant)]


def compared(variant: str) -> pd.DataFrame:
    """A variant's numbers beside the published ones, as from `bflp.paper.comparison.compare`."""
    return compared_of(archive(variant))


def compared_of(finished: list[Finished]) -> pd.DataFrame:
    return compare(frame(finished), set_ups(finished))


def end(result: Result) -> list[str]:
    """Of accuracies (%): that of the last round; mean and standard deviation of the last ones."""
    late = [entry.accuracy for entry in result.rounds][-LATE_ROUNDS:]
    return [as_number(late[-1]), f"{as_number(statistics.mean(late))} ± {as_number(statistics.stdev(late))}"]


def as_table(headers: list[str], rows: list[list[Any]]) -> str:
    return tabulate.tabulate(rows, headers, tablefmt="pipe", disable_numparse=True)


def as_number(value: float) -> str:
    return "not published" if math.isnan(value) else f"{value:.2f}"
