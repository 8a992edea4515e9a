"""Tables and statistics of other rounds than the last: `tables.at_round`, `tables.average_last`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import CURVES
from bflp.results.frame import NAMES
from bflp.settings.sections import Tables

if TYPE_CHECKING:
    import pandas as pd

CELL = [*NAMES, "seed"]


def in_words(tables: Tables) -> str:
    """Which rounds the numbers are of; empty for the final model."""
    if tables.at_round is not None:
        return f"after round {tables.at_round}"
    return f"mean over the last {tables.average_last} rounds" if tables.average_last is not None else ""


def of_chosen_rounds(frame: pd.DataFrame, rounds: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """The tidy results with the curves' numbers of the chosen rounds in place of the final model's metrics.

    frame, rounds: a row per cell, and per cell and evaluated round. Metrics that are of the final model only are
    missing in what comes out, and so are all of a cell that diverged. `ece_bins`: those that a curve's ECE was measured
    with, which may be others than those of the final evaluation.
    """
    if tables.at_round is not None:
        part = rounds[rounds["round"] == tables.at_round]
    else:
        assert tables.average_last is not None
        last = rounds.groupby(CELL)["round"].transform("max")
        part = rounds[rounds["round"] > last - tables.average_last]
    columns = [*CURVES, "ece_bins"]
    means = part.astype(dict.fromkeys(columns, float)).groupby(CELL)[columns].mean()
    others = frame.drop(columns=[name for name in METRICS if name in frame])
    found = others.join(means, on=CELL)
    found.loc[found["diverged"].astype(bool), columns] = float("nan")
    return found.reindex(columns=[*frame.columns, "ece_bins"])
