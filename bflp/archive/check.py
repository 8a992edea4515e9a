"""Checking an archive, zipped or unpacked, without the project's data and without running anything that it holds."""

from __future__ import annotations

import errno
import json
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from bflp.archive.contents import CHECKSUMS, FORMAT, code_of_tables, made, read_checksums
from bflp.datasets import prepared
from bflp.errors import DataError, UserError
from bflp.files import sha256_of
from bflp.grid.plan import Plan
from bflp.provenance.verify import AGAIN, Finding
from bflp.results.file import read_evaluation, read_result
from bflp.results.frame import Finished
from bflp.settings.schema import Settings
from bflp.settings.sections import Grid, Setup, StatisticsSettings, Tables

# What a zip file's reader raises where its bytes are damaged.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass
class Report:
    """What a check found: what is wrong, by file; how many cells and files there are."""

    wrong: list[Finding]
    cells: int = 0
    files: int = 0


class ArchivedPlan(Plan):
    """The grid of an archive. Its rows stand in the archive: to find them, own files would have to be executed."""

    def __init__(self, settings: Settings, about: dict[str, Any]) -> None:
        super().__init__(settings)
        grid = settings.grid
        self.sweeps = {name: _rows_of(name, rows, grid) for name, rows in about.get("sweeps", {}).items()}
        self.choosing = {name: str(metric) for name, metric in about.get("choosing", {}).items() if name in self.sweeps}
        names = [*grid.models, *(row for rows in self.sweeps.values() for row in rows)]
        self.rows = [_row(row, names) for row in about["rows"]]
        self._posteriors = list(about["posteriors"])

    def has_posterior(self, model: str) -> bool:
        return model in self._posteriors


def check(path: Path) -> Report:
    """Check an archive: a zip file, or the folder that it was unpacked to. Raises UserError where it is none."""
    if path.is_dir():
        return _check_folder(path, path, set())
    with tempfile.TemporaryDirectory() as folder:
        try:
            return _check_folder(Path(folder), path, _unpack(path, Path(folder)))
        except DataError as error:
            raise DataError(str(error).replace(folder, str(path))) from None


def _unpack(path: Path, folder: Path) -> set[str]:
    """Unpack a zip file; return the names of the files in it that are damaged."""
    damaged = set()
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            _check_names(path, [entry.filename for entry in entries])
            for entry in entries:
                file = folder / entry.filename
                file.parent.mkdir(parents=True, exist_ok=True)
                try:
                    with archive.open(entry) as source, file.open("wb") as target:
                        shutil.copyfileobj(source, target)
                except _DAMAGE as error:
                    if isinstance(error, OSError) and error.errno in _NO_ROOM:
                        raise
                    damaged.add(entry.filename)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a whole zip file ({error})") from None
    return damaged


def _check_names(path: Path, names: list[str]) -> None:
    if CHECKSUMS not in names:
        raise _no_archive(path)
    for name in names:
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or name.startswith("/") or "\\" in name or "\0" in name or ":" in parts[0]:
            raise UserError(f"{path} holds {name!r}, a name that leads out of it: do not unpack it")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path} holds {twice} twice: it is not an archive that `bflp archive` made")


def _no_archive(path: Path) -> UserError:
    return UserError(f"{path} is not an archive that `bflp archive` made: it has no {CHECKSUMS}")


def _check_folder(folder: Path, path: Path, damaged: set[str]) -> Report:
    """folder: where the files lie; path: what to call the archive."""
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if not file.is_dir()}
    if CHECKSUMS not in files:
        raise _no_archive(path)
    try:
        expected = read_checksums(files.pop(CHECKSUMS).read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        expected = None
    if expected is None or CHECKSUMS in damaged:
        return Report([Finding(path / CHECKSUMS, "was changed: nothing can be checked against it")])
    wrong = []
    for name in sorted(expected.keys() | files.keys()):
        if name not in files:
            wrong.append(Finding(path / name, "is missing"))
        elif name not in expected:
            wrong.append(Finding(path / name, "does not belong to it"))
        elif name in damaged or sha256_of(files[name]) != expected[name]:
            wrong.append(Finding(path / name, "was changed"))
    # Where files were changed, what follows from them says nothing more.
    return Report(wrong) if wrong else _check_contents(folder, path, len(files) + 1)


def _check_contents(folder: Path, path: Path, files: int) -> Report:
    about, given = _read_json(folder, path, "archive.json"), _read_json(folder, path, "settings.json")
    if about.get("format") != FORMAT:
        raise UserError(f"{path} is of another version of bflp; the one that it holds can check it: see its README.md")
    try:
        settings = _settings(given)
        plan = ArchivedPlan(settings, about)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = " ".join(str(error).split())
        raise UserError(f"{path}: settings.json and archive.json do not describe a grid ({what})") from None
    summaries = {file.stem: prepared.read_summary(file) for file in folder.glob("data/*.json")}
    wrong: list[Finding] = []
    finished: list[Finished] = []
    for cell in plan.cells:
        try:
            finished.append(
                (
                    cell,
                    read_result(cell.path(folder / "cells", ".json"), cell),
                    read_evaluation(cell.path(folder / "evaluations", ".json"), cell),
                )
            )
        except DataError as error:
            wrong.append(Finding(path, str(error).replace(f"{folder}/", "").removesuffix(f": {AGAIN}")))
    named = {str(cell.path("cells", ".json")) for cell in plan.cells}
    named |= {str(cell.path("evaluations", ".json")) for cell in plan.cells}
    for file in (*folder.glob("cells/**/*.json"), *folder.glob("evaluations/**/*.json")):
        if (name := file.relative_to(folder).as_posix()) not in named:
            wrong.append(Finding(path / name, "is of a cell that the grid does not have"))
    if not wrong:
        wrong += [Finding(path / name, what) for name, what in _disagreements(folder, finished, summaries)]
    if not wrong:
        wrong += _check_made(folder, path, plan, finished, summaries, about.get("code_of_tables"))
    return Report(wrong, len(finished), files)


def _disagreements(folder: Path, finished: list[Finished], summaries: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Results, evaluations, models and data that do not belong to one another."""
    for cell, result, evaluation in finished:
        assert evaluation is not None
        if result.data.dataset != summaries.get(cell.dataset, {}).get("sha256", result.data.dataset):
            yield str(cell.path("cells", ".json")), f"was made of other data than data/{cell.dataset}.json describes"
        if evaluation.model_sha256 != result.model_sha256 or evaluation.data.dataset != result.data.dataset:
            yield str(cell.path("evaluations", ".json")), "is of another model or other data than the cell's result"
        model = cell.path(folder / "cells", ".safetensors")
        recorded = result.environment.model_file
        if recorded and model.exists() and sha256_of(model) != recorded:
            yield str(cell.path("cells", ".safetensors")), "is not the model of the cell's result"


def _check_made(
    folder: Path, path: Path, plan: Plan, finished: list[Finished], summaries: dict[str, Any], code: Any
) -> Iterator[Finding]:
    """What is made from results, made again and compared."""
    advice = ""
    if code != code_of_tables():
        advice = "it was made by other code than this; the code that the archive holds can tell, see its README.md"
    expected = made(plan, finished, summaries)
    present = {file.relative_to(folder).as_posix() for file in folder.glob("tables/*")}
    for name in sorted({*expected, *present}):
        file = folder / name
        if name not in expected:
            yield Finding(path / name, "is no table of this grid", advice)
        elif not file.exists() or file.read_bytes() != expected[name].encode():
            yield Finding(path / name, "is not what the cells' results give", advice)


def _settings(given: dict[str, Any]) -> Settings:
    """The sections that tables read, and only these: others name files, which would be executed."""
    return Settings.model_construct(
        grid=Grid.model_validate(given["grid"]),
        setups={name: Setup.model_validate(setup) for name, setup in given["setups"].items()},
        tables=Tables.model_validate(given["tables"]),
        statistics=StatisticsSettings.model_validate(given["statistics"]),
    )


def _rows_of(name: str, rows: dict[str, Any], grid: Grid) -> dict[str, dict[str, Any]]:
    """The rows of a sweep, whose names are parts of paths."""
    for row in rows:
        if name not in grid.models or not re.fullmatch(rf"{re.escape(name)}-[A-Za-z0-9._+-]+", row) or ".." in row:
            raise ValueError(f"there is no row {row} of a sweep {name}")
    return {row: dict(values) for row, values in rows.items()}


def _row(row: Any, names: list[str]) -> tuple[str, str]:
    model, rule = row
    if model not in names or not re.fullmatch(r"\w+", rule):
        raise ValueError(f"there is no row {model} {rule}")
    return model, rule


def _read_json(folder: Path, path: Path, name: str) -> dict[str, Any]:
    try:
        value = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{path}: {name} is missing or is not a JSON object")
    return value
