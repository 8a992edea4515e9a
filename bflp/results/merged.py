"""results.csv and rounds.csv: written by merging; read only as merged for the present settings, code and data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bflp.errors import DataError
from bflp.files import write_text
from bflp.grid.plan import Plan
from bflp.results.frame import Finished, frame, read_csv, rounds_frame
from bflp.results.sweeps import marked

if TYPE_CHECKING:
    import pandas as pd


def write_merged(plan: Plan, finished: Iterable[Finished]) -> Path:
    """Write results.csv and rounds.csv, and a record of their content under the name of the plan's identity."""
    finished, lines = list(finished), []
    results = marked(plan, frame(finished))
    for path, merged in ((plan.paths.merged, results), (plan.paths.merged_rounds, rounds_frame(finished))):
        text = merged.to_csv(index=False)
        write_text(path, text)
        lines.append(f"{hashlib.sha256(text.encode()).hexdigest()}  {path.name}\n")
    write_text(record(plan), "".join(lines))
    return plan.paths.merged


def read_merged(plan: Plan, path: Path | None = None) -> pd.DataFrame:
    """The tidy data frame of results.csv, or of the other file that is merged, rounds.csv.

    Raises DataError unless it is what was merged for this very plan.
    """
    path, again = path or plan.paths.merged, "run snakemake again, or bflp merge"
    try:
        content, expected = path.read_bytes(), record(plan).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"there is no {path} of these settings and this code: {again}") from None
    if f"{hashlib.sha256(content).hexdigest()}  {path.name}" not in expected.splitlines():
        raise DataError(f"{path} was changed after it was merged: {again}")
    return read_csv(path)


def record(plan: Plan) -> Path:
    """The record; the Snakefile names this file, too: merging is due where it is missing."""
    return plan.results / ".merged" / plan.identity()
