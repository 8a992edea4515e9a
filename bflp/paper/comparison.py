"""Our numbers beside the published ones, cell by cell.

The difference is given in units of the published standard deviation of one seed: standard error x sqrt(5), and at least
half a unit of the last printed digit (0.005). Beyond 3 it is marked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import CURVES
from bflp.grid.cell import NO_AGGREGATOR
from bflp.reporting.table import Entry, Table
from bflp.reporting.titles import aggregator_title, block_title

PUBLISHED = Path(__file__).parent / "published"
PUBLISHED_SEEDS = 5
HALF_DIGIT = 0.005
MARKED_BEYOND = 3.0
KEYS = ["dataset", "partition", "clients", "model", "aggregator"]
# Names stay text, also those that look like numbers.
TEXT = dict.fromkeys(KEYS, str)
COLUMNS = [
    *KEYS,
    "metric",
    "published",
    "published_error",
    "ours",
    "ours_error",
    "seeds",
    "difference",
    "marked",
]


def published() -> pd.DataFrame:
    """The published means and standard errors: KEYS, metric, published, published_error."""
    results = pd.read_csv(PUBLISHED / "results.csv", keep_default_na=False, dtype=TEXT)
    spread = pd.read_csv(PUBLISHED / "spread.csv", keep_default_na=False, dtype=TEXT).assign(metric="spread")
    frame = pd.concat([results, spread], ignore_index=True)
    frame["aggregator"] = frame["aggregator"].replace("N/A", NO_AGGREGATOR)
    frame = frame.rename(columns={"mean": "published", "standard_error": "published_error"})
    return frame[[*KEYS, "metric", "published", "published_error"]]


def compare(frame: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS for every published number of which we have at least one seed. frame: tidy results (results.frame)."""
    metrics = list(CURVES)
    usable = frame[~frame["diverged"].astype(bool)]
    long = usable.melt(id_vars=KEYS, value_vars=metrics, var_name="metric", value_name="value")
    long["value"] = pd.to_numeric(long["value"])
    ours = long.groupby([*KEYS, "metric"], sort=False)["value"].agg(["mean", "sem", "count"]).reset_index()
    ours = ours.rename(columns={"mean": "ours", "sem": "ours_error", "count": "seeds"})
    joined = published().merge(ours[ours["seeds"] > 0], on=[*KEYS, "metric"])
    one_seed = (joined["published_error"] * math.sqrt(PUBLISHED_SEEDS)).clip(lower=HALF_DIGIT)
    joined["difference"] = (joined["ours"] - joined["published"]) / one_seed
    joined["marked"] = joined["difference"].abs() > MARKED_BEYOND
    return joined[COLUMNS]


def blocks(frame: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """The parts of a frame by (dataset, partition, clients), in the order in which they come."""
    for key in dict.fromkeys(zip(*(frame[name] for name in KEYS[:3]), strict=True)):
        yield key, frame[(frame[KEYS[:3]] == list(key)).all(axis=1)]


def comparison_table(compared: pd.DataFrame, name: str = "comparison") -> Table:
    """The comparison as a table: a row per model, aggregator and metric, a block of rows per block of cells."""
    shown = []
    for key, block in blocks(compared):
        rows = []
        for row in block.to_dict("records"):
            rule, title = aggregator_title(row["aggregator"]), METRICS[row["metric"]].title
            theirs = Entry(float(row["published"]), float(row["published_error"]), 1, 1)
            ours = Entry(float(row["ours"]), float(row["ours_error"]), 1, 1)
            difference = f"{row['difference']:+.1f}{' *' if row['marked'] else ''}"
            rows.append(((f"{row['model']} {rule}", title), (theirs, ours, str(row["seeds"]), difference)))
        shown.append((block_title(*key), rows))
    return Table(
        name=name,
        caption="Published and our numbers, mean ± standard error over seeds (one seed: no error). Difference: in "
        "units of the published standard deviation of one seed (standard error x sqrt(5), at least 0.005); * beyond 3.",
        labels=("", "Row", "Metric"),
        groups=[("", 4)],
        columns=["Published", "Ours", "Seeds", "Difference"],
        blocks=shown,
    )


def summary(compared: pd.DataFrame) -> Mapping[str, int]:
    """How many numbers were compared, and how many are marked."""
    return {"compared": len(compared), "marked": int(compared["marked"].sum())}
