"""The published tables as results of five seeds that have their means and standard errors: what tables must print."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import made_up_grid
import numpy as np
import pandas as pd

from bflp.engine.metrics.registry import METRICS
from bflp.reporting.titles import aggregator_title

PUBLISHED = Path(__file__).resolve().parents[1] / "bflp" / "paper" / "published" / "bflp"
RESULTS = ("accuracy", "ece", "nll")
COLUMNS = ["dataset", "partition", "clients", "model", "aggregator", "seed", "diverged", *METRICS]
SUMMARIES = {
    "fmnist": {"input_shape": [1, 28, 28], "labels": 10, "train_size": 60000, "test_size": 10000},
    "cifar10": {"input_shape": [3, 32, 32], "labels": 10, "train_size": 50000, "test_size": 10000},
    "svhn": {"input_shape": [3, 32, 32], "labels": 10, "train_size": 73257, "test_size": 26032},
}
# Five numbers of mean 0 and sample standard deviation 1.
FIVE = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) / np.sqrt(2.5)


def paper(**changes: Any) -> Any:
    """The grid of the published tables."""
    grid = {"datasets": ["fmnist", "cifar10", "svhn"], "partitions": ["iid", "noniid"], "seeds": [0, 1, 2, 3, 4]}
    return made_up_grid.plan(**{"setups": ["10", "100"], **grid, **changes})


def published(*metrics: str) -> pd.DataFrame:
    frame = pd.read_csv(PUBLISHED / "numbers.csv", keep_default_na=False, dtype={"clients": str})
    return frame[frame["metric"].isin(metrics)]


def as_results() -> pd.DataFrame:
    """Tidy results of five seeds."""
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    for number in published(*RESULTS, "spread").itertuples():
        for seed, deviation in enumerate(FIVE):
            key = (number.dataset, number.partition, number.clients, number.model, number.aggregator, seed)
            value = number.mean + deviation * number.error * math.sqrt(5)
            rows.setdefault(key, {})[str(number.metric)] = value
    frame = pd.DataFrame([{**dict(zip(COLUMNS, key, strict=False)), **values} for key, values in rows.items()])
    return frame.assign(diverged=False).reindex(columns=COLUMNS)


def made_up(plan: Any, seed: int = 0) -> pd.DataFrame:
    """Random results of all cells of a grid."""
    generator, grid = np.random.default_rng(seed), plan.settings.grid
    keys = [
        (dataset, partition, clients, *row, number)
        for dataset in grid.datasets
        for partition in grid.partitions
        for clients in grid.clients
        for row in plan.rows
        for number in grid.seeds
    ]
    rows = [(*key, False, *generator.uniform(0, 99, len(METRICS))) for key in keys]
    return pd.DataFrame(rows, columns=COLUMNS)


def awkward(count: int = 7, seeds: tuple[int, ...] = (3,)) -> Any:
    """Many data sets, one seed, and names with all characters that names may have."""
    return made_up_grid.plan(
        {"FED": ("equal", ()), "FVBA": ("equal", ("EAA", "My_Rule_2"))},
        setups={"2": 2, "1000": 1000, "all_of-them+.": 1},
        datasets=[f"my_data-{number}.v+{number}" for number in range(count)],
        partitions=["iid", "very_uneven_-+.0"],
        seeds=list(seeds),
    )


def markdown_rows(text: str) -> list[list[str]]:
    """The cells of a Markdown table; the second row is the rule below the header."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def expected_rows(clients: str, pattern: str, bold: str) -> dict[tuple[str, ...], list[str]]:
    """(partition, model, rule) -> the nine published entries of the row, in a format's words."""
    numbers: dict[Any, Any] = {
        (row.dataset, row.partition, row.clients, row.model, row.aggregator, row.metric): row
        for row in published(*RESULTS).itertuples()
    }
    result: dict[tuple[str, ...], list[str]] = {}
    titles = {"iid": "IID", "noniid": "non-IID"}
    for _, partition, count, model, rule, _ in numbers:
        if count == clients:
            row = [
                numbers[dataset, partition, clients, model, rule, metric]
                for dataset in ("fmnist", "cifar10", "svhn")
                for metric in RESULTS
            ]
            result[titles[partition], model, aggregator_title(rule)] = [
                pattern.format(bold.format(f"{entry.mean:.2f}") if entry.bold else f"{entry.mean:.2f}", entry.error)
                for entry in row
            ]
    assert len(result) == 24
    return result
