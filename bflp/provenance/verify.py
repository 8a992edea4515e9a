"""Checking all that a results folder holds: data, partitions, results, models, evaluations and the merged table.

Each finding names a file, what is wrong with it and what to do.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bflp.datasets import prepared, source
from bflp.datasets.download import is_current
from bflp.errors import DataError
from bflp.grid.cell import Cell
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.partition import files as partition_files
from bflp.provenance.state import CellState, finished_of, state
from bflp.reporting.figures import figures_of
from bflp.reporting.titles import ON_DEMAND, table_titles
from bflp.results.frame import frame, rounds_frame
from bflp.results.sweeps import marked
from bflp.runtime.clients import load_clients
from bflp.runtime.evaluate import load_model, model_hash
from bflp.runtime.inputs import Assignment

AGAIN = "delete it and run snakemake again"


@dataclass(frozen=True)
class Finding:
    """Something about a file. wrong: whether it makes the folder's results wrong, or is only worth knowing."""

    path: Path
    what: str
    advice: str = ""
    wrong: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" + (f": {self.advice}" if self.advice else "")


@dataclass
class Report:
    """What a check found. results: how many cells have one that is right; missing: cells without one."""

    findings: list[Finding] = field(default_factory=list)
    results: int = 0
    missing: list[Cell] = field(default_factory=list)

    @property
    def wrong(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.wrong]

    @property
    def remarks(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.wrong]


class _WrongError(Exception):
    """The first thing that is wrong with a file."""

    def __init__(self, path: Path, what: str, advice: str = "", wrong: bool = True) -> None:
        super().__init__(what)
        self.finding = Finding(path, what, advice, wrong)


@dataclass(frozen=True)
class _Prepared:
    """A data set that is there and whole."""

    dataset: prepared.Dataset
    sha256: str


def verify(plan: Plan) -> Report:
    """Check the results folder of a plan."""
    report = Report()
    data: dict[str, _Prepared] = {}
    for dataset in plan.datasets():
        with _collecting(report):
            data[dataset] = _check_data(plan, dataset)
    partitions: dict[Path, str] = {}
    for cell in plan.cells:
        path = plan.partition_file(cell)
        if path not in partitions and cell.dataset in data:
            partitions[path] = ""
            with _collecting(report):
                partitions[path] = _check_partition(plan, cell, data[cell.dataset])
    hashes = {name: one.sha256 for name, one in data.items()}
    right: list[CellState] = []
    for cell in plan.cells:
        found = state(plan, cell, hashes)
        if found.kind == "missing":
            report.missing.append(cell)
            continue
        with _collecting(report):
            _check_result(plan, found, partitions.get(plan.partition_file(cell), ""))
            if cell.dataset in data:
                _check_model(plan, found, data[cell.dataset].dataset)
            right.append(found)
            _check_evaluation(plan, found, data.get(cell.dataset))
    report.results = len(right)
    if len(right) == len(plan.cells) and all(found.evaluation for found in right):
        report.findings.extend(_check_merged(plan, right))
    report.findings.extend(_not_named(plan))
    return report


@contextlib.contextmanager
def _collecting(report: Report) -> Iterator[None]:
    """Add what a check raises to the report."""
    try:
        yield
    except _WrongError as error:
        report.findings.append(error.finding)


def _check_data(plan: Plan, name: str) -> _Prepared:
    path, own = plan.paths.data(name), plan.settings.source(name)
    if not path.exists():
        raise _WrongError(path, "is not there, so that results cannot be checked against it", wrong=False)
    try:
        dataset = prepared.open_prepared(path)
        # And as others would read it: training maps the arrays, and does not look at the archive's checksums.
        as_read = source.load_source(path)
        summary = prepared.read_summary(path)
    except DataError as error:
        raise _from_error(path, error) from None
    if summary != dataset.summary() or summary != as_read.summary():
        raise _WrongError(path, "is not what its summary says", "delete both and run snakemake again")
    if own is not None and Path(own).exists() and not is_current(Path(own), path):
        raise _WrongError(path, f"was made from another {own} than is there now", "run snakemake again")
    return _Prepared(dataset, summary["sha256"])


def _check_partition(plan: Plan, cell: Cell, data: _Prepared) -> str:
    """The hash of the partition that present settings, code and data give; its file, if there is one, is checked."""
    path, labels = plan.partition_file(cell), data.dataset.train_labels
    job = json.loads(plan.partition_job_of(cell))
    try:
        expected = partition_files.make(labels, job, data.sha256, data.dataset.train_clients)
        if path.exists():
            found = partition_files.load(path)
            partition_files.check(found, path, job, data.sha256, len(labels))
            if found.content_hash() != expected.content_hash():
                raise _WrongError(path, "holds another split than its settings give", AGAIN)
            counts = path.with_suffix(".csv")
            if counts.exists() and _text(counts) != partition_files.counts_table(expected, labels):
                raise _WrongError(counts, "holds other counts than the partition", AGAIN)
    except DataError as error:
        raise _from_error(path, error) from None
    return expected.content_hash()


def _check_result(plan: Plan, found: CellState, partition: str) -> None:
    path, reason = plan.paths.result(found.cell), found.reason
    if found.kind == "damaged":
        raise _WrongError(path, reason.removeprefix(f"{path} "))
    assert found.result is not None
    if not reason and partition not in ("", found.result.data.partition):
        reason = "another partition"
    if reason:
        advice = "run snakemake again, or go back to what it was made with"
        raise _WrongError(path, f"was made with {reason}", advice)


def _check_model(plan: Plan, found: CellState, dataset: prepared.Dataset) -> None:
    cell, path = found.cell, plan.paths.model(found.cell)
    assert found.result is not None
    job = Job.parse(plan.job(cell))
    layout = Assignment(job, plan.paths.data(cell.dataset), plan.partition_file(cell)).layout(dataset)
    try:
        digest = model_hash(load_model(path, layout))
    except DataError as error:
        raise _from_error(path, error) from None
    if digest != found.result.model_sha256:
        raise _WrongError(path, "is not the model of the cell's result", "delete both and run snakemake again")
    if plan.settings.keep_clients:
        path = plan.paths.clients(cell)
        try:
            load_clients(path, layout.size, found.result.environment.clients_file)
        except DataError as error:
            raise _from_error(path, error) from None


def _check_evaluation(plan: Plan, found: CellState, data: _Prepared | None) -> None:
    path = plan.paths.evaluation(found.cell)
    if not found.evaluation:
        raise _WrongError(path, found.evaluation_reason, "run bflp evaluate")
    counts = found.evaluation.reliability.counts if found.evaluation.reliability else None
    size = len(data.dataset.test_labels) if data else None
    if counts is not None and size is not None and sum(counts) != size:
        what = f"was made on {sum(counts)} images, the test set has {size}"
        raise _WrongError(path, what, "delete it and run bflp evaluate")


def _check_merged(plan: Plan, right: list[CellState]) -> Iterator[Finding]:
    finished = finished_of(right)
    merged = {plan.paths.merged: marked(plan, frame(finished)), plan.paths.merged_rounds: rounds_frame(finished)}
    for path, made in merged.items():
        if path.exists() and _text(path) != made.to_csv(index=False):
            yield Finding(path, "does not hold what the cells' results say", AGAIN)


def _not_named(plan: Plan) -> Iterator[Finding]:
    """Files that nothing in the config has: also tables and figures of what left the grid."""
    paths, named = plan.paths, set[Path]()
    for cell in plan.cells:
        named |= {paths.result(cell), paths.model(cell), paths.evaluation(cell), paths.progress(cell)}
        named |= {paths.evaluation(cell).with_suffix(".npz"), paths.clients(cell)}
        named |= {paths.progress(cell).with_suffix(".lock"), plan.partition_file(cell)}
        named.add(plan.partition_file(cell).with_suffix(".csv"))
    named |= {paths.evaluated(*block) for block in plan.blocks()}
    folders = ("cells", "evaluations", "evaluated", "partitions", "progress")
    for path in _files(*(plan.results / folder for folder in folders)):
        if path.name.endswith(".tmp"):
            yield Finding(path, "was left by a program that is running or was killed", wrong=False)
        elif path not in named:
            yield Finding(path, "belongs to nothing in this config", wrong=False)
    blocks = {"/".join(block) for block in plan.blocks()}
    for path in _files(plan.results / "figures"):
        block = str(path.parent.relative_to(plan.results / "figures"))
        if block != "." and (block not in blocks or path.stem not in figures_of(plan)):
            yield Finding(path, "belongs to nothing in this config", wrong=False)
    for path in _files(plan.results / "tables"):
        if path.stem not in (*table_titles(plan), *ON_DEMAND):
            yield Finding(path, "belongs to nothing in this config", wrong=False)


def _files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in folder.rglob("*") if path.is_file())


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _from_error(path: Path, error: DataError) -> _WrongError:
    """What a reader's error says, without the file's name, which the finding has."""
    return _WrongError(path, str(error).removeprefix(f"{path} "))
