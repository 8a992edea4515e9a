"""results.csv: written by merging, and read only as what was merged for the present settings, code and data."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from bflp.errors import DataError
from bflp.files import write_text
from bflp.grid.plan import Plan
from bflp.results.frame import read_csv

if TYPE_CHECKING:
    import pandas as pd


def write_merged(plan: Plan, merged: pd.DataFrame) -> Path:
    """Write results.csv, and a record of its content under the name of the plan's identity."""
    path, text = plan.paths.merged, merged.to_csv(index=False)
    write_text(path, text)
    write_text(record(plan), hashlib.sha256(text.encode()).hexdigest() + "\n")
    return path


def read_merged(plan: Plan) -> pd.DataFrame:
    """The tidy data frame of results.csv. Raises DataError unless it is what was merged for this very plan."""
    path, again = plan.paths.merged, "run snakemake again, or bflp merge"
    try:
        content, expected = path.read_bytes(), record(plan).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"there is no {path} of these settings and this code: {again}") from None
    if hashlib.sha256(content).hexdigest() != expected.strip():
        raise DataError(f"{path} was changed after it was merged: {again}")
    return read_csv(path)


def record(plan: Plan) -> Path:
    """The record; the Snakefile names this file, too: merging is due where it is missing."""
    return plan.results / ".merged" / plan.identity()
