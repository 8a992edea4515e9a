"""Reading a block's results and label counts from a run's folder."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bflp.errors import DataError
from bflp.grid.plan import Plan
from bflp.provenance.state import CellState, finished_of, refuse_unfit, states
from bflp.reporting.figures.block import Block
from bflp.results.frame import frame
from bflp.results.sweeps import choices


def load_block(
    plan: Plan, dataset: str, partition: str, clients: str, partial: bool = False
) -> tuple[Block, list[CellState]]:
    """A block, and which of its results the present settings, code or data would not give.

    With `partial`, what has not run or is damaged is left out; else that, and what is stale, raises DataError.
    """
    cells = plan.block(dataset, partition, clients)
    found = states(plan, cells)
    if not partial:
        refuse_unfit(found)
    records: dict[tuple[str, str], dict[int, CellState]] = {}
    for item in found:
        if item.result is not None:
            records.setdefault(item.cell.row, {})[item.cell.seed] = item
    counts = plan.partition_file(cells[0]).with_suffix(".csv")
    label_counts = None if partial and not counts.exists() else read_label_counts(counts)
    chosen = {(name, rule): (row, rule) for (*_, name, rule), row in choices(plan, frame(finished_of(found))).items()}
    block = Block.planned(plan, (dataset, partition, clients), records, label_counts, chosen)
    return block, [item for item in found if item.kind in ("stale", "damaged")]


def read_label_counts(path: Path) -> NDArray[np.int64]:
    """Training samples per client and label [C, L]. Raises DataError."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            _, *lines = csv.reader(file)
        return np.array([line[2:] for line in lines], dtype=np.int64)
    except FileNotFoundError:
        raise DataError(f"there is no {path}: run snakemake, which makes it with the partition") from None
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}): delete it and run snakemake again") from None
