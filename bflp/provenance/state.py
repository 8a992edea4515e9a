"""In which state a cell is: the one answer for status, why, verify, merging, partial tables and training by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from bflp.datasets import prepared
from bflp.errors import DataError
from bflp.files import sha256_of
from bflp.grid.cell import Cell
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.provenance import reasons
from bflp.results.evaluation import Evaluation
from bflp.results.file import read_evaluation, read_result
from bflp.results.frame import Finished
from bflp.results.result import Result
from bflp.runtime.kept import SUFFIXES

# Of results that are wrong in the same way.
MOST_LISTED = 20


@dataclass(frozen=True)
class CellState:
    """kind: of the result; reason: why it is damaged or stale. evaluation: None unless it fits the result and what is
    wanted now; evaluation_reason: why it does not."""

    cell: Cell
    kind: Literal["missing", "damaged", "stale", "diverged", "done"]
    reason: str = ""
    result: Result | None = None
    evaluation: Evaluation | None = None
    evaluation_reason: str = ""

    @property
    def is_right(self) -> bool:
        """Whether training has nothing to do."""
        return self.kind in ("done", "diverged")


def state(plan: Plan, cell: Cell, hashes: Mapping[str, str]) -> CellState:
    """The state of one cell. hashes: from `data_hashes`."""
    path = plan.paths.result(cell)
    if not path.exists():
        return CellState(cell, "missing")
    try:
        result = read_result(path, cell)
    except DataError as error:
        return CellState(cell, "damaged", str(error))
    reason = reasons.result_mismatch(result, json.loads(plan.job(cell)), hashes)
    if reason is None and plan.settings.keep_clients and result.environment.clients_file is None:
        reason = "a training that did not keep its clients' models (keep_clients)"
    evaluation, evaluation_reason = _evaluation(plan, cell, result, hashes)
    kind: Literal["stale", "diverged", "done"] = "stale" if reason else "diverged" if result.diverged else "done"
    return CellState(cell, kind, reason or "", result, evaluation, evaluation_reason)


def states(plan: Plan, cells: Iterable[Cell] | None = None) -> list[CellState]:
    """The states of cells, by default all of the plan's."""
    hashes = data_hashes(plan)
    return [state(plan, cell, hashes) for cell in (plan.cells if cells is None else cells)]


def finished_of(found: Iterable[CellState]) -> list[Finished]:
    """What tables are made of: the cells that have a result, whatever made it."""
    return [(item.cell, item.result, item.evaluation) for item in found if item.result is not None]


def data_hashes(plan: Plan) -> dict[str, str]:
    """The content hashes of the data sets that are prepared, by name; "" for one that has to be prepared again."""
    hashes = {}
    for dataset in plan.datasets():
        file = plan.paths.data(dataset)
        if prepared.summary_file(file).exists():
            outdated = reasons.preparation(plan, dataset) is not None
            hashes[dataset] = "" if outdated else prepared.read_summary(file)["sha256"]
    return hashes


def _evaluation(plan: Plan, cell: Cell, result: Result, hashes: Mapping[str, str]) -> tuple[Evaluation | None, str]:
    path = plan.paths.evaluation(cell)
    if not path.exists():
        return None, "is missing"
    try:
        evaluation = read_evaluation(path, cell)
    except DataError as error:
        return None, f"is damaged ({error})"
    reason = reasons.evaluation_mismatch(evaluation, result, plan.evaluation_of(cell), hashes)
    if reason is None and evaluation.final is not None and evaluation.settings.get("keep_predictions"):
        file = path.with_suffix(".npz")
        if not file.exists() or sha256_of(file) != evaluation.predictions:
            return None, f"has other predictions beside it than its own, or none ({file})"
    return (None, f"is of {reason}") if reason else (evaluation, "")


def refuse_unfit(found: Iterable[CellState]) -> None:
    """Raise DataError, naming files and reasons, unless all cells are right and evaluated."""
    found = list(found)
    unusable = [item.reason for item in found if item.kind == "damaged"]
    unusable += [f"there is no result of {item.cell}" for item in found if item.kind == "missing"]
    if unusable:
        raise DataError(f"{len(unusable)} result(s) cannot be used:{listed(unusable)}")
    stale = [item for item in found if item.kind == "stale"]
    if stale:
        raise DataError(describe_stale(stale))
    unevaluated = [f"the evaluation of {item.cell} {item.evaluation_reason}" for item in found if not item.evaluation]
    if unevaluated:
        raise DataError(
            f"{len(unevaluated)} evaluation(s) are not what is wanted now:{listed(unevaluated)}\n"
            "Run bflp evaluate: it takes seconds"
        )


def announce(plan: Plan) -> None:
    """Say on stderr how many finished results are of other settings, code or data, and will be replaced."""
    finished = [cell for cell in plan.cells if plan.paths.result(cell).exists()]
    stale = [item for item in states(plan, finished) if item.kind == "stale"]
    if stale:
        lost = sum(not _is_kept(plan, item.result) for item in stale if item.result is not None)
        stay = f"They stay in {plan.paths.kept}: going back to what made them trains nothing."
        if lost:
            stay = f"{lost} of them are not in {plan.paths.kept}: going back to what made these trains them again."
        print(
            f"{len(stale)} of {len(finished)} finished results are of other settings, code or data and will be "
            f"replaced, the first: {stale[0].cell}: {stale[0].reason}. {stay} `bflp why` lists them all.",
            file=sys.stderr,
        )


def _is_kept(plan: Plan, result: Result) -> bool:
    """Whether it would be put back when what made it comes back."""
    job = Job(Cell(**result.cell.model_dump()), result.settings, result.fingerprint, "")
    kept = plan.paths.kept / job.identity(result.data.dataset)
    return all(kept.with_name(f"{kept.name}{SUFFIXES[what]}").exists() for what in ("result", "model"))


def describe_stale(stale: Iterable[CellState]) -> str:
    """What is stale and what to do, for people."""
    stale = list(stale)
    return (
        f"{len(stale)} result(s) are not what the present settings, code and data would give:"
        f"{listed([f'{item.cell}: {item.reason}' for item in stale])}\n"
        "Run snakemake again to train these cells, or go back to the settings and code they were made with. "
        "Where snakemake finds nothing to do (its records are lost), delete them first: "
        "`bflp why --paths`, with the same --configfile, lists the files."
    )


def listed(lines: list[str]) -> str:
    """One line each, the first MOST_LISTED."""
    more = f"\n  and {len(lines) - MOST_LISTED} more" if len(lines) > MOST_LISTED else ""
    return "".join(f"\n  {line}" for line in lines[:MOST_LISTED]) + more
