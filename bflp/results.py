"""Reading results: each cell's JSON checked, and all of them as one tidy data frame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bflp.datasets import arrays
from bflp.errors import DataError
from bflp.federation.result_file import checksum
from bflp.grid import Cell, Plan

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
CLIENT_METRICS = tuple(f"{name}_{what}" for name in METRICS[:3] for what in ("worst_decile", "gini"))
FIELDS = (
    "cell",
    "settings",
    "fingerprint",
    "data",
    "environment",
    "diverged",
    "rounds",
    "final",
    "reliability",
    "clients",
    "timing",
)


def read_result(path: Path, cell: Cell) -> dict[str, Any]:
    """A cell's result. Raises DataError, naming the file, when it is damaged or is not of this cell."""
    advice = "delete it and run snakemake again"
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no result {path}") from None
    except ValueError as error:
        raise DataError(f"{path} is no valid JSON ({error}): {advice}") from None
    if not isinstance(result, dict) or not set(FIELDS) <= result.keys():
        missing = sorted(set(FIELDS) - set(result)) if isinstance(result, dict) else FIELDS
        raise DataError(f"{path} is no result of a cell (without {', '.join(missing)}): {advice}")
    if result["cell"] != cell.as_dict():
        raise DataError(f"{path} holds the result of another cell, {result['cell']}: {advice}")
    if result["environment"].get("checksum") != checksum(result):
        raise DataError(f"{path} was changed after it was written (wrong checksum): {advice}")
    final = result["final"]
    complete = isinstance(final, dict) and all(isinstance(final.get(name), float) for name in METRICS[:3])
    if not complete and not isinstance(result["diverged"], dict):
        raise DataError(f"{path} lacks a final metric: {advice}")
    return result


@dataclass(frozen=True)
class Stale:
    """A result that the present settings, code or data would not give."""

    path: Path
    reason: str


def stale_reason(result: dict[str, Any], job: dict[str, Any], hashes: Mapping[str, str]) -> str | None:
    """Why a result does not fit its present job and data; None when it does. hashes: of the data sets, by name."""
    if result["settings"] != job["settings"]:
        changed = sorted(
            key
            for key in result["settings"].keys() | job["settings"].keys()
            if result["settings"].get(key) != job["settings"].get(key)
        )
        return f"other settings ({', '.join(changed)})"
    if result["fingerprint"] != job["fingerprint"]:
        return f"other code (fingerprint {result['fingerprint']}, now {job['fingerprint']})"
    names = {
        "dataset": job["cell"]["dataset"],
        "out_of_distribution": job["settings"]["evaluation"]["out_of_distribution"],
    }
    for key, name in names.items():
        if name in hashes and result["data"][key] != hashes[name]:
            return f"other data (images or labels of {name})"
    return None


def collect(plan: Plan, partial: bool = False) -> tuple[pd.DataFrame, list[Stale]]:
    """The final metrics and times of the cells that the config names, one row each, and which results are stale.

    With `partial`, cells without a result are left out; else they raise DataError. A damaged result raises DataError.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    stale: list[Stale] = []
    hashes = _data_hashes(plan)
    for cell in plan.cells:
        path = plan.result_file(cell)
        if partial and not path.exists():
            continue
        result = read_result(path, cell)
        reason = stale_reason(result, json.loads(plan.job(cell)), hashes)
        if reason:
            stale.append(Stale(path, reason))
        rows.append(_row(cell, result))
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
    return pd.DataFrame(rows, columns=columns), stale


TIMES = ("train", "aggregation", "evaluation")


def _row(cell: Cell, result: dict[str, Any]) -> dict[str, Any]:
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


def _data_hashes(plan: Plan) -> dict[str, str]:
    hashes = {}
    for dataset in plan.datasets():
        file = plan.data_file(dataset)
        if arrays.summary_file(file).exists():
            hashes[dataset] = arrays.read_summary(file)["sha256"]
    return hashes


def describe_stale(stale: Iterable[Stale]) -> str:
    """What is stale and what to do, for people."""
    stale = list(stale)
    listed = "".join(f"\n  {item.path}: {item.reason}" for item in stale[:20])
    more = f"\n  and {len(stale) - 20} more" if len(stale) > 20 else ""
    return (
        f"{len(stale)} result(s) are not what the present settings, code and data would give:{listed}{more}\n"
        "Delete them and run snakemake again to train these cells anew, or go back to the settings and code they "
        "were made with."
    )
