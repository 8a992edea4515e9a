"""Reading a block's results and label counts from a run's folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.errors import DataError
from bflp.grid.plan import Plan
from bflp.reporting.figures.block import Block, Row
from bflp.results.frame import Stale, data_hashes, read_result, stale_reason


def load_block(
    plan: Plan, dataset: str, partition: str, clients: int, partial: bool = False
) -> tuple[Block, list[Stale]]:
    """A block, and which of its results the present settings, code or data would not give.

    With `partial`, what has not run is left out; else it raises DataError, as a damaged file does in any case.
    """
    hashes = data_hashes(plan)
    results: dict[Row, dict[int, Any]] = {}
    stale: list[Stale] = []
    for cell in plan.block(dataset, partition, clients):
        path = plan.result_file(cell)
        if partial and not path.exists():
            continue
        result = read_result(path, cell)
        reason = stale_reason(result, json.loads(plan.job(cell)), hashes)
        if reason:
            stale.append(Stale(path, reason))
        results.setdefault((cell.model, cell.aggregator), {})[cell.seed] = result
    counts = counts_file(plan, dataset, partition, clients)
    block = Block(
        dataset,
        partition,
        clients,
        rows=plan.rows(),
        seeds=plan.settings.grid.seeds,
        results=results,
        label_counts=None if partial and not counts.exists() else read_label_counts(counts),
        label_seed=plan.settings.grid.seeds[0],
    )
    return block, stale


def counts_file(plan: Plan, dataset: str, partition: str, clients: int) -> Path:
    """The label counts that a block's figure shows: of the grid's first seed."""
    return plan.partition_file(plan.block(dataset, partition, clients)[0]).with_suffix(".csv")


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
