"""A cell's identity: what it depends on, and that settings which are new and neutral leave it as it was."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bflp.errors import UserError
from bflp.grid.cell import Cell
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.settings.schema import Settings

PROJECT = Path(__file__).resolve().parents[2]
# As few settings as can be: the others have their defaults.
CONFIG = {
    "grid": {
        "datasets": ["fmnist"],
        "partitions": ["iid", "noniid"],
        "clients": [10],
        "models": ["FED", "FVBA"],
        "aggregators": ["EAA", "CF"],
        "seeds": [0],
    },
    "partitions": {"iid": {"strategy": "iid"}, "noniid": {"strategy": "dirichlet", "alpha": 0.5}},
    "setups": {10: {"fraction": 1.0, "rounds": 50}},
}
CELLS = Plan(Settings.parse(CONFIG)).cells
DATA = "0" * 64


def identities() -> dict[str, str]:
    plan = Plan(Settings.parse(CONFIG))
    return {str(cell): Job.parse(plan.job(cell)).identity(DATA) for cell in plan.cells}


def everything(cell: Cell) -> bool:
    return True


def nothing(cell: Cell) -> bool:
    return False


MOMENTUM = "    momentum: ShareBelowOne = 0.9\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "concerned"),
    [
        # Settings that a later version adds: in a section, in one within a section, in a base of sections.
        (MOMENTUM, f"{MOMENTUM}    nesterov: bool = neutral(False)\n", nothing),
        ("    enforce: Lit", '    shape: str = neutral("diagonal")\n    enforce: Lit', nothing),
        ("    held_out: Share", "    shuffled: bool = neutral(True)\n    held_out: Share", nothing),
        # Not said to be neutral, so that results from before are of something else.
        (MOMENTUM, f"{MOMENTUM}    nesterov: bool = False\n", everything),
        # Other defaults of settings that count, where cells read them.
        (MOMENTUM, MOMENTUM.replace("0.9", "0.8"), everything),
        ("initial: AnyFloat = -9.0", "initial: AnyFloat = -8.0", lambda cell: cell.model == "FVBA"),
        (
            'min_samples: NonNegativeInt = 10\n    """The fewest',
            'min_samples: NonNegativeInt = 9\n    """The fewest',
            lambda cell: cell.partition == "noniid",
        ),
        ("clip_norm: PositiveFloat | None = neutral(None)", "clip_norm: PositiveFloat = neutral(5.0)", nothing),
        # Of settings that change no result.
        ("processes: PositiveInt = 10", "processes: PositiveInt = 3", nothing),
        ("ece_bins: PositiveInt = 100", "ece_bins: PositiveInt = 15", nothing),
    ],
)
def test_which_identities_another_version_of_the_settings_changes(
    tmp_path: Path, old: str, new: str, concerned: Callable[[Cell], bool]
) -> None:
    shutil.copytree(PROJECT / "bflp", tmp_path / "bflp", ignore=shutil.ignore_patterns("__pycache__"))
    texts = {file: file.read_text(encoding="utf-8") for file in (tmp_path / "bflp" / "settings").glob("*.py")}
    [(file, text)] = [(file, text) for file, text in texts.items() if old in text]
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")
    code = (
        "import json; from bflp.grid.plan import Plan; from bflp.grid.job import Job;"
        f"from bflp.settings.schema import Settings; plan = Plan(Settings.parse({CONFIG!r}));"
        f"print(json.dumps({{str(cell): Job.parse(plan.job(cell)).identity({DATA!r}) for cell in plan.cells}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    later, now = json.loads(done.stdout), identities()
    assert {cell for cell in now if later[cell] != now[cell]} == {str(cell) for cell in CELLS if concerned(cell)}


def test_all_that_a_result_depends_on_is_in_the_identity() -> None:
    job = Job.parse(Plan(Settings.parse(CONFIG)).job(CELLS[0]))
    other = [
        replace(job, cell=replace(job.cell, seed=1)),
        replace(job, cell=replace(job.cell, dataset="svhn")),
        replace(job, fingerprint="0" * 16),
        replace(job, settings={**job.settings, "weights": "data"}),
    ]
    assert len({job.identity(DATA), job.identity("1" * 64), *(each.identity(DATA) for each in other)}) == 6


# Of a cell that runs a person's own files.
OWN: dict[str, dict[str, Any]] = {
    "algorithm": {"name": "own", "file": "mine.py", "strength": 0.1},
    "network": {"name": "own", "file": "net.py", "width": 6},
    "optimiser": {"name": "adam", "epsilon": 1e-8},
    "partition": {"strategy": "file", "file": "halves.py", "sha256": "0" * 64},
    "posterior": {"kind": "swag", "prior": {"mean": 0.0}},
    "rule": {"strength": 2.0},
    "setup": {"clients": 2, "fraction": 1.0, "rounds": 3},
    "training": {"learning_rate": 0.1},
}


@pytest.mark.parametrize(("section", "key"), [(section, key) for section, values in OWN.items() for key in values])
def test_every_setting_is_in_the_identity_but_where_files_lie(section: str, key: str) -> None:
    job = Job(CELLS[0], OWN, "0" * 16, "0" * 16)
    other = replace(job, settings={**OWN, section: {**OWN[section], key: "another"}})
    assert (other.identity(DATA) == job.identity(DATA)) is (key == "file")


def test_old_cells_keep_their_identity() -> None:
    """Results and checkpoints that are kept lie under it."""
    assert Job(CELLS[0], OWN, "0" * 16, "1" * 16).identity(DATA) == "dfc721d7bc415bf888fa35a1-3"


def test_the_number_of_rounds_stands_apart() -> None:
    """A longer run goes on from what a shorter one left: the same name but for the number behind the dash."""
    job = Job.parse(Plan(Settings.parse(CONFIG)).job(CELLS[0]))
    longer = replace(job, settings={**job.settings, "setup": {**job.settings["setup"], "rounds": 70}})
    base, _, rounds = job.identity(DATA).partition("-")
    assert rounds == "50" and longer.identity(DATA) == f"{base}-70"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"cell": {}}', '{"cell": {"dataset": "fmnist"}}', "null"])
def test_a_malformed_job_is_told_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match=r"^malformed --job: [^\n]+$"):
        Job.parse(text)
