"""Sweeps in the results: which row of one that chooses is shown, by held-out samples and never by test data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from bflp.engine.metrics.registry import METRICS
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.results.frame import NAMES
from bflp.results.result import Result

if TYPE_CHECKING:
    import pandas as pd

# Data set, partition, set-up, the sweep's name, rule.
Shown = tuple[str, str, str, str, str]


def marked(plan: Plan, frame: pd.DataFrame) -> pd.DataFrame:
    """The tidy results of a plan, where it has sweeps with two columns more: `sweep`, the one that a row is of, and
    `chosen`, "yes" or "no" in the rows of one that chooses. Both are None elsewhere."""
    of = {row: name for name, rows in plan.sweeps.items() for row in rows}
    if not of:
        return frame
    found = choices(plan, frame)
    chosen: list[str | None] = []
    for dataset, partition, clients, model, rule in frame[list(NAMES)].itertuples(index=False, name=None):
        best = found.get((dataset, partition, clients, of.get(model, ""), rule))
        chosen.append(None if of.get(model) not in plan.choosing else "yes" if best == model else "no")
    sweeps = [of.get(str(model)) for model in frame["model"]]
    return frame.assign(sweep=np.array(sweeps, dtype=object), chosen=np.array(chosen, dtype=object))


def choices(plan: Plan, frame: pd.DataFrame) -> dict[Shown, str]:
    """The row that each block and rule shows of each sweep that chooses: that with the best mean over seeds of the
    metric on the held-out samples after the last round.

    A row that diverged with any seed comes last, of equals the first counts. Nothing is chosen before all have run.
    """
    found: dict[Shown, str] = {}
    for name, wanted in plan.choosing.items():
        rows, sign = list(plan.sweeps[name]), -1 if METRICS[wanted].higher_is_better else 1
        cells = frame[frame["model"].isin(rows)]
        for (*block, rule), group in cells.groupby(["dataset", "partition", "clients", "aggregator"]):
            if len(group) < len(rows) * len(plan.settings.grid.seeds):
                continue
            losses = (sign * group[f"held_out_{wanted}"].astype(float)).mask(group["diverged"].astype(bool), np.inf)
            means = losses.groupby(group["model"]).mean()
            found[cast("Shown", (*block, name, rule))] = min(rows, key=means.__getitem__)
    return found


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """What tables and statistics show of results that are `marked`: of a sweep that chooses the rows that are chosen,
    under its name."""
    if "chosen" not in frame:
        return frame
    names = frame["sweep"].where(frame["chosen"] == "yes", frame["model"])
    return frame.assign(model=names)[frame["chosen"] != "no"]


def with_chosen(plan: Plan, frame: pd.DataFrame, results: Mapping[Cell, Result]) -> dict[Cell, Result]:
    """The results of cells, and those of chosen rows also under their sweep's name."""
    found = dict(results)
    for (data, split, clients, name, rule), row in choices(plan, frame).items() if results else ():
        for seed in plan.settings.grid.seeds:
            found[Cell(data, split, clients, name, rule, seed)] = results[Cell(data, split, clients, row, rule, seed)]
    return found
