"""The files of an archive: config, results, tables and figures made from them, code, versions and checksums."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bflp.archive.crate import metadata
from bflp.datasets import prepared
from bflp.files import whole_file
from bflp.fingerprint import ROOT, fingerprint
from bflp.grid.plan import Plan
from bflp.provenance.state import CellState, finished_of, refuse_unfit, states
from bflp.reporting.chosen_rounds import in_words, of_chosen_rounds
from bflp.reporting.figures import differences, draw, figures_of, rank_diagram, style
from bflp.reporting.figures.loading import load_block
from bflp.reporting.formats import FORMATS
from bflp.reporting.overview import effective, environments
from bflp.reporting.statistics.analysis import of_plan
from bflp.reporting.statistics.table import statistics_tables
from bflp.reporting.tables import make_tables
from bflp.results.frame import Finished, frame, read_csv, rounds_frame
from bflp.results.sweeps import marked

if TYPE_CHECKING:
    import pandas as pd

    from bflp.reporting.statistics.analysis import Statistics

FORMAT = 1
CHECKSUMS = "checksums.sha256"
_ABOVE = "# sha256 of the lines below: "
# What the workflow runs, of the project's folder.
_CODE = ("Snakefile", "bflp", "config.yaml", "envs", "profiles", "workflow", "pyproject.toml", "LICENSE")
# Zip files know no earlier time; the same run gives the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)
_README = """\
# {title}

{description}

| | |
| --- | --- |
| `config/` | the config files as they were given, in their order |
| `settings.json` | all settings that followed from them, defaults included |
| `results.csv`, `rounds.csv` | a row per cell, its metrics and times; a row per cell and evaluated round |
| `cells/`, `evaluations/` | of each cell the curves over rounds{models}, and the evaluation of the final model |
| `tables/`, `figures/` | made from these |
| `data/` | sizes and content hashes of the data sets, not their images |
| `archive.json` | rows of the tables, versions and machines |
| `code/` | the workflow, without its documents and tests |
| `own/` | rules, algorithms and networks from outside the workflow; `archive.json` has their paths in the config |
| `requirements.txt` | the pinned packages |
| `checksums.sha256` | of every other file; `sha256sum -c checksums.sha256` |

`bflp verify FILE.zip`, also of the unpacked folder, checks that every file is as it was written, that none is missing
or added, and that `results.csv`, `rounds.csv` and the tables are what the cells' results give. It needs no data. The
code that is in the archive does it, too, with the packages of `requirements.txt`, from elsewhere:
`python unpacked/code/workflow/scripts/run.py verify FILE.zip`

`ro-crate-metadata.json` says this in the form of an RO-Crate (https://w3id.org/ro/crate/1.1).
"""


def write(plan: Plan, given: Mapping[str, str], models: bool, path: Path) -> int:
    """Write the archive of a finished grid; return how many files it has.

    given: the text of each config file, by its name in the archive; models: with the final models. Raises DataError
    unless every cell has the result and the evaluation that present settings, code and data give.
    """
    found = states(plan)
    refuse_unfit(found)
    with tempfile.TemporaryDirectory() as folder, whole_file(path) as temporary:
        files = _files(plan, found, given, models, Path(folder))
        files[CHECKSUMS] = checksums(files).encode()
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in sorted(files):
                entry = zipfile.ZipInfo(name, _TIME)
                entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
                entry.external_attr = 0o100644 << 16
                archive.writestr(entry, _bytes(files[name]))
    return len(files)


def made(plan: Plan, finished: Sequence[Finished], summaries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """results.csv, rounds.csv and the tables by their files' names. summaries: of the data sets, by name."""
    texts = {
        "results.csv": marked(plan, frame(finished)).to_csv(index=False),
        "rounds.csv": rounds_frame(finished).to_csv(index=False),
    }
    results = shown_results(plan, texts)
    tables = make_tables(plan, results, summaries, {cell: result for cell, result, _ in finished})
    if statistics := _statistics(plan, results):
        tables += statistics_tables(statistics)
    tables_texts = {f"tables/{table.name}.{kind}": FORMATS[kind](table) for table in tables for kind in FORMATS}
    return texts | tables_texts


def shown_results(plan: Plan, texts: Mapping[str, str]) -> pd.DataFrame:
    """The results that tables and statistics show. Read from the texts, as the workflow does: a number that comes back
    another in its last bit can be rounded otherwise."""
    final, rounds = (read_csv(StringIO(texts[name])) for name in ("results.csv", "rounds.csv"))
    settings = plan.settings.tables
    return of_chosen_rounds(final, rounds, settings) if in_words(settings) else final


def code_of_tables() -> str:
    """The fingerprint of the code that makes results.csv, rounds.csv and the tables."""
    made_by = ("results.frame", "reporting.tables", "reporting.formats", "reporting.statistics.table")
    return fingerprint(tuple(f"bflp.{module}" for module in made_by))


def checksums(files: Mapping[str, bytes | Path]) -> str:
    """The text of CHECKSUMS, which `sha256sum -c` reads; its first line is of itself."""
    lines = "".join(f"{hashlib.sha256(_bytes(files[name])).hexdigest()}  {name}\n" for name in sorted(files))
    return f"{_ABOVE}{hashlib.sha256(lines.encode()).hexdigest()}\n{lines}"


def read_checksums(text: str) -> dict[str, str] | None:
    """The sha256 of each file by its name; None where the text is not one that `checksums` gave."""
    first, _, lines = text.partition("\n")
    if first != _ABOVE + hashlib.sha256(lines.encode()).hexdigest():
        return None
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines.splitlines())}


def _files(
    plan: Plan, found: list[CellState], given: Mapping[str, str], models: bool, folder: Path
) -> dict[str, bytes | Path]:
    """Everything but the checksums: the content, or the file that has it. folder: for what is made."""
    finished = finished_of(found)
    summaries = {
        name: prepared.read_summary(plan.paths.data(name))
        for name in plan.datasets()
        if prepared.summary_file(plan.paths.data(name)).exists()
    }
    own = _own_files(plan)
    texts = {
        **given,
        "settings.json": _json(effective(plan.settings)),
        "archive.json": _json(_about(plan, found, own)),
        **made(plan, finished, summaries),
        **{f"data/{name}.json": _json(summary) for name, summary in summaries.items()},
    }
    files: dict[str, bytes | Path] = {name: text.encode() for name, text in texts.items()}
    for item in found:
        files[str(item.cell.path("cells", ".json"))] = plan.paths.result(item.cell)
        files[str(item.cell.path("evaluations", ".json"))] = plan.paths.evaluation(item.cell)
        if models:
            files[str(item.cell.path("cells", ".safetensors"))] = plan.paths.model(item.cell)
    files |= _figures(plan, shown_results(plan, texts), folder)
    files |= {name: Path(file) for file, name in own.items()}
    files |= {f"code/{file.relative_to(ROOT)}": file for file in _code()}
    if (pinned := ROOT / "envs/requirements.txt").exists():
        files["requirements.txt"] = pinned
    title, description = _words(plan, models)
    readme = _README.format(title=title, description=description, models=" and the final model" if models else "")
    files["README.md"] = readme.encode()
    # No result says when it was made. This is as near as it gets, and stays with the files.
    last = max(plan.paths.result(item.cell).stat().st_mtime for item in found)
    day = datetime.fromtimestamp(last, UTC).date().isoformat()
    files["ro-crate-metadata.json"] = _json(metadata([*files, CHECKSUMS], title, description, day)).encode()
    return files


def _about(plan: Plan, found: list[CellState], own: Mapping[str, str]) -> dict[str, Any]:
    """What a check needs to know beside the settings, without running what these name; and what cells ran with."""
    ran_with = environments(item.result for item in found if item.result is not None)
    return {
        "format": FORMAT,
        "rows": plan.rows,
        "sweeps": plan.sweeps,
        "choosing": plan.choosing,
        "posteriors": [name for name in dict.fromkeys(name for name, _ in plan.shown_rows) if plan.has_posterior(name)],
        "code_of_tables": code_of_tables(),
        "cells": [{"number": number, **environment} for environment, number in ran_with],
        "own_files": own,
    }


def _own_files(plan: Plan) -> dict[str, str]:
    """The user's own files that the grid's cells run, each with its name in the archive."""
    paths = dict.fromkeys(file for cell in plan.cells for file in json.loads(plan.job(cell))["files"].values())
    return {file: f"own/{number}-{plain_name(Path(file))}" for number, file in enumerate(sorted(paths), 1)}


def plain_name(file: Path) -> str:
    """A file's name with signs that mean nothing anywhere."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", file.name)


def _code() -> Iterator[Path]:
    for name in _CODE:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            hidden = any(part.startswith((".", "__pycache__")) for part in file.relative_to(ROOT).parts)
            if file.is_file() and not hidden:
                yield file


def _figures(plan: Plan, results: pd.DataFrame, folder: Path) -> dict[str, Path]:
    for coordinates in plan.blocks():
        block, _ = load_block(plan, *coordinates, partial=False)
        for name in figures_of(plan):
            style.save(draw(name, block), folder.joinpath("figures", *coordinates, name))
    if statistics := _statistics(plan, results):
        style.save(differences.draw(statistics), folder / "figures/differences")
        style.save(rank_diagram.draw(statistics), folder / "figures/ranks")
    return {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}


def _statistics(plan: Plan, results: pd.DataFrame) -> Statistics | None:
    """None: there is nothing to compare."""
    return of_plan(plan, results) if len(plan.shown_rows) > 1 else None


def _words(plan: Plan, models: bool) -> tuple[str, str]:
    """A title and a description, from the grid."""
    grid = plan.settings.grid
    rows = [" ".join(row).removesuffix(" none") for row in plan.rows]
    return (
        f"Federated learning on {', '.join(grid.datasets)}: {len(plan.cells)} experiments",
        f"Results{' and models' if models else ''} of {len(plan.cells)} experiments in federated learning, made by the "
        f"Snakemake workflow bflp. Data sets: {', '.join(grid.datasets)}. Partitions: {', '.join(grid.partitions)}. "
        f"Set-ups (clients): {', '.join(grid.clients)}. Rows: {', '.join(rows)}. "
        f"Seeds: {', '.join(map(str, grid.seeds))}.",
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _bytes(content: bytes | Path) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()
