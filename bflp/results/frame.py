"""Reading results: each cell's JSON checked, and all of them as one tidy data frame."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bflp.datasets import prepared as arrays
from bflp.errors import DataError
from bflp.files import write_text
from bflp.grid.plan import Cell, Plan
from bflp.provenance import reasons
from bflp.results import schema as result_schema
from bflp.results.file import checksum

if TYPE_CHECKING:
    import pandas as pd

METRICS = ("accuracy", "ece", "nll", "spread")
FURTHER_METRICS = (
    "brier",
    "adaptive_ece",
    "maximum_calibration_error",
    "entropy",
    "aleatoric",
    "epistemic",
    "ood_auroc",
)
# Of results that are wrong in the same way.
MOST_LISTED = 20
CLIENT_METRICS = tuple(f"{name}_{what}" for name in METRICS[:3] for what in ("worst_decile", "gini"))


def read_result(path: Path, cell: Cell) -> dict[str, Any]:
    """A cell's result. Raises DataError, naming the file, when it is damaged, is not whole or is not of this cell."""
    advice = "delete it and run snakemake again"
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except FileNotFoundError:
        raise DataError(f"there is no result {path}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is no valid JSON ({error}): {advice}") from None
    environment = result.get("environment") if isinstance(result, dict) else None
    if not isinstance(environment, dict) or "checksum" not in environment:
        raise DataError(f"{path} is no result of a cell: {advice}")
    if environment["checksum"] != checksum(result):
        raise DataError(f"{path} was changed after it was written (wrong checksum): {advice}")
    if result.get("cell") != cell.as_dict():
        raise DataError(f"{path} holds the result of another cell, {result.get('cell')}: {advice}")
    wrong = result_schema.check(result)
    if wrong:
        raise DataError(f"{path} has not the form of a result ({'; '.join(wrong[:3])}): {advice}")
    return result


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


@dataclass(frozen=True)
class Stale:
    """A result that the present settings, code or data would not give."""

    path: Path
    reason: str


def stale_reason(result: dict[str, Any], job: dict[str, Any], hashes: Mapping[str, str]) -> str | None:
    """Why a result does not fit its present job and data; None when it does. hashes: of the data sets, by name."""
    return reasons.mismatch(result, job, hashes)


def collect(plan: Plan, partial: bool = False) -> tuple[pd.DataFrame, list[Stale]]:
    """The final metrics and times of the cells that the config names, one row each, and which results are stale.

    Results that are missing or damaged raise DataError, which names them all; with `partial`, cells without a result
    are left out, and damaged ones are left out and listed among the stale ones.
    """
    rows: list[dict[str, Any]] = []
    stale: list[Stale] = []
    unusable: list[str] = []
    hashes = data_hashes(plan)
    for cell in plan.cells:
        path = plan.result_file(cell)
        if partial and not path.exists():
            continue
        try:
            result = read_result(path, cell)
        except DataError as error:
            unusable.append(str(error))
            if partial:
                stale.append(Stale(path, "is damaged"))
            continue
        reason = stale_reason(result, json.loads(plan.job(cell)), hashes)
        if reason:
            stale.append(Stale(path, reason))
        rows.append(row(cell, result))
    if unusable and not partial:
        raise DataError(f"{len(unusable)} result(s) can not be used:{_listed(unusable)}")
    return frame(rows), stale


def collect_archive(folder: Path) -> pd.DataFrame:
    """All results below a folder `cells`, whatever settings and code made them. Raises DataError for a damaged one."""
    files = sorted(folder.rglob("seed*.json"))
    if not files:
        raise DataError(f"there is no result below {folder}")
    cells = [Cell.parse(str(file.relative_to(folder).with_suffix(""))) for file in files]
    return frame([row(cell, read_result(file, cell)) for cell, file in zip(cells, files, strict=True)])


def frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The tidy data frame of the rows."""
    import pandas as pd

    columns = [
        *Cell.__dataclass_fields__,
        "diverged",
        *METRICS,
        *FURTHER_METRICS,
        *(f"clients_{name}" for name in CLIENT_METRICS),
        "rounds",
        *(f"{name}_seconds" for name in TIMES),
        "total_seconds",
    ]
    return pd.DataFrame(rows, columns=columns)


TIMES = ("train", "aggregation", "evaluation")


def row(cell: Cell, result: dict[str, Any]) -> dict[str, Any]:
    """A cell's row of the tidy data frame."""
    timing = result["timing"]
    per_round = {
        f"{name}_seconds": sum(timing[f"{name}_seconds"]) / max(1, len(timing["train_seconds"])) for name in TIMES
    }
    return {
        **cell.as_dict(),
        "diverged": result["diverged"] is not None,
        **{name: (result["final"] or {}).get(name) for name in METRICS + FURTHER_METRICS},
        **{f"clients_{name}": (result["clients"] or {}).get(name) for name in CLIENT_METRICS},
        "rounds": len(timing["train_seconds"]),
        **per_round,
        "total_seconds": timing["total_seconds"],
    }


def data_hashes(plan: Plan) -> dict[str, str]:
    """The content hashes of the data sets that are prepared, by name; "" for one that is to be prepared anew."""
    hashes = {}
    for dataset in plan.datasets():
        file = plan.data_file(dataset)
        if arrays.summary_file(file).exists():
            outdated = reasons.preparation(plan, dataset) is not None
            hashes[dataset] = "" if outdated else arrays.read_summary(file)["sha256"]
    return hashes


def write_merged(plan: Plan, merged: pd.DataFrame) -> Path:
    """Write results.csv, and a record of its content under the name of the plan's identity."""
    path, text = _merged_file(plan), merged.to_csv(index=False)
    write_text(path, text)
    write_text(_merged_record(plan), hashlib.sha256(text.encode()).hexdigest() + "\n")
    return path


def read_merged(plan: Plan) -> pd.DataFrame:
    """The tidy data frame of results.csv. Raises DataError unless it is what was merged for this very plan."""
    import pandas as pd

    path, again = _merged_file(plan), "run snakemake again, or python workflow/scripts/merge.py"
    try:
        content, record = path.read_bytes(), _merged_record(plan).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"there is no {path} of these settings and this code: {again}") from None
    if hashlib.sha256(content).hexdigest() != record.strip():
        raise DataError(f"{path} was changed after it was merged: {again}")
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


def _merged_file(plan: Plan) -> Path:
    return plan.results / "results.csv"


def _merged_record(plan: Plan) -> Path:
    # The Snakefile names this file, too: merging is due where it is missing.
    return plan.results / ".merged" / plan.identity()


def describe_stale(stale: Iterable[Stale]) -> str:
    """What is stale and what to do, for people."""
    stale = list(stale)
    listed = _listed([f"{item.path}: {item.reason}" for item in stale])
    return (
        f"{len(stale)} result(s) are not what the present settings, code and data would give:{listed}\n"
        "Run snakemake again to train these cells anew, or go back to the settings and code they were made with. Where "
        "snakemake finds nothing to do (its records are lost), delete them first: `python workflow/scripts/why.py "
        "--paths`, with the same --configfile, lists the files."
    )


def _listed(lines: list[str]) -> str:
    more = f"\n  and {len(lines) - MOST_LISTED} more" if len(lines) > MOST_LISTED else ""
    return "".join(f"\n  {line}" for line in lines[:MOST_LISTED]) + more
