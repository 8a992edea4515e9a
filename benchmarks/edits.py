"""What an edit computes again: training jobs and evaluation jobs of a finished grid of 48 cells, as a Markdown table.

    python benchmarks/edits.py

Each edit is made in a copy of the project with a small grid that is finished (2 data sets x 2 partitions x 12 rows, so
4 blocks of 12 cells); `snakemake -n` then says what would run. Two to five minutes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "workflow"))

import finished_grid

from bflp.settings.read import laid


@dataclass(frozen=True)
class Edit:
    """training, evaluation: how many jobs it costs."""

    what: str
    make: Callable[[Path], None]
    training: int
    evaluation: int


def replaced(file: str, old: str, new: str) -> Callable[[Path], None]:
    """Write `new` instead of `old` in a file of the project."""

    def make(folder: Path) -> None:
        source = (folder / file).read_text(encoding="utf-8")
        if source.count(old) != 1:
            raise ValueError(f"{file} holds {old!r} {source.count(old)} times")
        (folder / file).write_text(source.replace(old, new), encoding="utf-8")

    return make


def appended(file: str, text: str) -> Callable[[Path], None]:
    """Add a text at a file's end."""
    return lambda folder: _write(folder / file, (folder / file).read_text(encoding="utf-8") + text)


def copied(file: str, new: str) -> Callable[[Path], None]:
    """A new file, which holds what another one holds."""
    return lambda folder: _write(folder / new, (folder / file).read_text(encoding="utf-8"))


def configured(**changes: Any) -> Callable[[Path], None]:
    """Change the grid's config."""
    return lambda folder: finished_grid.write_config(folder, laid(finished_grid.CONFIG, changes))


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


FIELD = '    momentum: ShareBelowOne = 0.9\n    """Momentum of SGD."""\n'
CELLS, BLOCKS = 48, 4
EDITS = [
    Edit(
        "another wording of the warning in `runtime/lock.py`",
        replaced("bflp/runtime/lock.py", "make sure that no other process trains", "let nothing else train"),
        *(0, 0),
    ),
    Edit(
        "another text of an error in `errors.py`",
        replaced("bflp/errors.py", "there is not enough memory", "the memory is full"),
        *(0, 0),
    ),
    Edit(
        "another text of what is said of a divergence",
        replaced("bflp/runtime/cell.py", "the training diverged in round", "training came to nothing in round"),
        *(0, 0),
    ),
    Edit(
        "another interval of progress lines",
        replaced("bflp/runtime/progress.py", "SECONDS_BETWEEN_LINES = 60.0", "SECONDS_BETWEEN_LINES = 30.0"),
        *(0, 0),
    ),
    Edit("other seconds between checkpoints", configured(checkpoint_seconds=30), 0, 0),
    Edit(
        "another text of a check of `source:` files",
        replaced("bflp/datasets/source.py", "there is nothing to tell apart", "there must be two"),
        *(0, 0),
    ),
    Edit("a new built-in rule", copied("bflp/aggregators/cf.py", "bflp/aggregators/mine.py"), 0, 0),
    Edit(
        "a function that nothing uses in `engine/metrics/brier.py`",
        appended("bflp/engine/metrics/brier.py", "\n\ndef unused() -> None:\n    pass\n"),
        *(0, BLOCKS),
    ),
    Edit(
        "a new settings field with a neutral default",
        replaced("bflp/settings/sections.py", FIELD, f"{FIELD}    smoothing: NonNegativeFloat = neutral(0.0)\n"),
        *(0, 0),
    ),
    Edit("`evaluation: {ece_bins: 15}`", configured(evaluation={"ece_bins": 15}), 0, BLOCKS),
    Edit(
        "`evaluation: {out_of_distribution: other}`",
        configured(datasets={"other": {"source": "plain.npz"}}, evaluation={"out_of_distribution": "other"}),
        *(0, BLOCKS),
    ),
    Edit("a new metric", copied("bflp/engine/metrics/brier.py", "bflp/engine/metrics/mine.py"), 0, BLOCKS),
    Edit("an edit of `engine/client.py`", appended("bflp/engine/client.py", "\nEDITED = 1\n"), CELLS, BLOCKS),
    Edit("an edit of `aggregators/eaa.py`", appended("bflp/aggregators/eaa.py", "\nEDITED = 1\n"), 8, BLOCKS),
]


def jobs(folder: Path) -> tuple[int, int]:
    """How many cells a dry run would train, and how many blocks it would evaluate."""
    cells, rules = finished_grid.would_run(folder)
    return len(cells), rules.count("evaluate")


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as name:
        finished = Path(name, "finished")
        finished.mkdir()
        finished_grid.make(finished)
        rows = []
        for number, edit in enumerate(EDITS):
            folder = Path(name, str(number))
            shutil.copytree(finished, folder, symlinks=True)
            edit.make(folder)
            rows.append((edit.what, *jobs(folder)))
            shutil.rmtree(folder)
    print(tabulate.tabulate(rows, ("edit", "training jobs", "evaluation jobs"), tablefmt="github"))


if __name__ == "__main__":
    main()
