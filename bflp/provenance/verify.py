"""Checking all that a results folder holds: data, partitions, results, models and the merged table.

Each finding names a file, what is with it and what to do. Merging does the same checks of the results
(`results.read_result`, `results.stale_reason`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from bflp.datasets import prepared as arrays
from bflp.datasets.download import is_current
from bflp.errors import DataError
from bflp.grid.plan import Cell, Plan
from bflp.networks.layout import Layout
from bflp.partition import files as partition_files
from bflp.results.frame import frame, read_result, row, stale_reason

AGAIN = "delete it and run snakemake again"


@dataclass(frozen=True)
class Finding:
    """Something about a file. wrong: whether it makes the folder's results wrong, or is only worth knowing."""

    path: Path
    what: str
    advice: str
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


@dataclass(frozen=True)
class Prepared:
    """A data set that is there and whole."""

    dataset: arrays.Dataset
    sha256: str


def verify(plan: Plan) -> Report:
    """Check the results folder of a plan."""
    report = Report()
    prepared = {}
    for dataset in plan.datasets():
        try:
            prepared[dataset] = _check_data(plan, dataset)
        except _Found as found:
            report.findings.append(found.finding)
    partitions: dict[Path, str] = {}
    for cell in plan.cells:
        path = plan.partition_file(cell)
        if path not in partitions and cell.dataset in prepared:
            partitions[path] = ""
            try:
                partitions[path] = _check_partition(plan, cell, prepared[cell.dataset])
            except _Found as found:
                report.findings.append(found.finding)
    hashes = {name: one.sha256 for name, one in prepared.items()}
    rows = []
    for cell in plan.cells:
        if not plan.result_file(cell).exists():
            report.missing.append(cell)
            continue
        try:
            result = _check_result(plan, cell, hashes, partitions.get(plan.partition_file(cell), ""))
            if cell.dataset in prepared:
                _check_size(plan, cell, result, prepared[cell.dataset].dataset)
                _check_model(plan, cell, result, prepared[cell.dataset].dataset)
            rows.append(row(cell, result))
        except _Found as found:
            report.findings.append(found.finding)
    report.results = len(rows)
    if len(rows) == len(plan.cells):
        report.findings.extend(_check_merged(plan, rows))
    report.findings.extend(_not_named(plan))
    return report


class _Found(Exception):
    """The first thing that is wrong with a file."""

    def __init__(self, path: Path, what: str, advice: str, wrong: bool = True) -> None:
        super().__init__(what)
        self.finding = Finding(path, what, advice, wrong)


def _check_data(plan: Plan, name: str) -> Prepared:
    path, source = plan.data_file(name), plan.settings.source(name)
    if not path.exists():
        raise _Found(path, "is not there, so that results can not be checked against it", "", wrong=False)
    try:
        dataset = arrays.open_prepared(path)
        # And as others would read it: training maps the arrays, and does not look at the archive's checksums.
        as_read = arrays.load_source(path)
        summary = arrays.read_summary(path)
    except DataError as error:
        raise _from_error(path, error) from None
    if summary != dataset.summary() or summary != as_read.summary():
        raise _Found(path, "is not what its summary says", "delete both and run snakemake again")
    if source is not None and Path(source).exists() and not is_current(Path(source), path):
        raise _Found(path, f"was made from another {source} than is there now", "run snakemake again")
    return Prepared(dataset, summary["sha256"])


def _check_partition(plan: Plan, cell: Cell, prepared: Prepared) -> str:
    """The hash of the partition that present settings, code and data give; its file, if there is one, is checked."""
    path, labels = plan.partition_file(cell), prepared.dataset.train_labels
    job = json.loads(plan.partition_job(cell.dataset, cell.partition, cell.clients, cell.seed))
    try:
        expected = partition_files.make(labels, job, prepared.sha256)
        if path.exists():
            found = partition_files.load(path)
            partition_files.check(found, path, job, prepared.sha256, len(labels))
            if found.content_hash() != expected.content_hash():
                raise _Found(path, "holds another split than its settings give", AGAIN)
            counts = path.with_suffix(".csv")
            if counts.exists() and _text(counts) != partition_files.counts_table(expected, labels):
                raise _Found(counts, "holds other counts than the partition", AGAIN)
    except DataError as error:
        raise _from_error(path, error) from None
    return expected.content_hash()


def _check_result(plan: Plan, cell: Cell, hashes: dict[str, str], partition: str) -> dict[str, Any]:
    path = plan.result_file(cell)
    try:
        result = read_result(path, cell)
    except DataError as error:
        raise _from_error(path, error) from None
    reason = stale_reason(result, json.loads(plan.job(cell)), hashes)
    if reason is None and partition not in ("", result["data"]["partition"]):
        reason = "another partition"
    if reason is not None:
        raise _Found(
            path, f"was made with {reason}", "delete it and run snakemake again, or go back to what it was made with"
        )
    return result


def _check_size(plan: Plan, cell: Cell, result: dict[str, Any], dataset: arrays.Dataset) -> None:
    counted = sum(result["reliability"]["counts"]) if result["reliability"] else len(dataset.test_labels)
    if counted != len(dataset.test_labels):
        what = f"was evaluated on {counted} images, the test set has {len(dataset.test_labels)}"
        raise _Found(plan.result_file(cell), what, AGAIN)


def _check_model(plan: Plan, cell: Cell, result: dict[str, Any], dataset: arrays.Dataset) -> None:
    path = plan.model_file(cell)
    advice = f"delete it and {plan.result_file(cell)}, and run snakemake again"
    if not path.exists():
        raise _Found(
            path,
            "is not there, though the cell's result is",
            f"delete {plan.result_file(cell)} and run snakemake again",
        )
    try:
        tensors = load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise _Found(path, f"is damaged ({error})", advice) from None
    layout = Layout(dataset.image_shape, dataset.labels, cell.variational)
    shapes = {name: shape for name, (_, shape) in layout.tensors.items()}
    if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        raise _Found(path, "holds other tensors than the cell's network has", advice)
    vector = np.concatenate([tensors[name].ravel() for name in shapes])
    if vector.dtype != np.float32 or not np.isfinite(vector).all():
        raise _Found(path, "holds entries that are no finite float32 numbers", advice)
    if hashlib.sha256(vector.tobytes()).hexdigest() != result["model_sha256"]:
        raise _Found(path, "is not the model of the cell's result", advice)


def _check_merged(plan: Plan, rows: list[dict[str, Any]]) -> Iterator[Finding]:
    path = plan.results / "results.csv"
    if path.exists() and _text(path) != frame(rows).to_csv(index=False):
        yield Finding(path, "does not hold what the cells' results say", AGAIN)


def _not_named(plan: Plan) -> Iterator[Finding]:
    """Files that no cell of the config has."""
    named = {
        file
        for cell in plan.cells
        for file in (
            plan.result_file(cell),
            plan.model_file(cell),
            plan.partition_file(cell),
            plan.partition_file(cell).with_suffix(".csv"),
        )
    }
    running = {plan.checkpoint_folder(cell) for cell in plan.cells}
    for path in _files(plan.results / "cells", plan.results / "partitions", plan.results / "checkpoints"):
        if path.name.endswith(".tmp"):
            yield Finding(path, "was left by a program that is running or was killed", "", wrong=False)
        elif path not in named and path.parent not in running:
            yield Finding(path, "is of no cell that the config names", "", wrong=False)


def _files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in folder.rglob("*") if path.is_file())


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _from_error(path: Path, error: DataError) -> _Found:
    """What a reader's error says, without the file's name, which the finding has."""
    return _Found(path, str(error).removeprefix(f"{path} "), "")
