"""docs/own-rule.md, followed to the letter in a copy of the project; and what a rule's mistakes look like."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_project import ROOT, Project

PAGE = (ROOT / "docs/own-rule.md").read_text(encoding="utf-8")
# Paragraph before a block, the block's language, its content.
BLOCKS = re.findall(r"([^\n]*(?:\n[^\n]+)*)\n\n```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line as someone types it who has activated the virtual environment."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder in which all has been done that the page says, and what the commands printed."""
    folder = tmp_path_factory.mktemp("followed")
    Project.make(folder)
    shutil.copytree(ROOT / "examples", folder / "examples")
    printed = []
    for paragraph, language, content in BLOCKS:
        if language == "sh":
            for line in content.splitlines():
                done = shell(folder, line)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
                printed.append(done.stdout)
        else:
            names = re.findall(r"`([^`]+\.(?:py|yaml))`", paragraph)
            if names:
                assert not (folder / names[-1]).exists()
                (folder / names[-1]).write_text(content, encoding="utf-8")
    return folder, printed


def test_the_row_is_in_the_table(followed: tuple[Path, list[str]]) -> None:
    folder, printed = followed
    table = (folder / "results/own-rule/tables/results10.md").read_text(encoding="utf-8")
    row = next(line for line in table.splitlines() if "WASSERSTEIN" in line)
    assert any(row in text for text in printed)
    assert len(re.findall(r"\d+\.\d+", row)) >= 6
    for table_file in (folder / "results/own-rule/tables").glob("*.*"):
        if table_file.name.startswith(("results", "spread")):
            assert "WASSERSTEIN" in table_file.read_text(encoding="utf-8"), table_file
    assert "4 cells: 4 up to date, 0 would run" in printed[-1]


def test_it_is_the_wasserstein_barycentre(followed: tuple[Path, list[str]]) -> None:
    """At an initial spread that is all but equal, the mean of standard deviations is at most that of variances."""
    folder, _ = followed
    spreads = {
        rule: json.loads((folder / f"results/own-rule/cells/fmnist-mini/iid/10/FVBA/{rule}/seed0.json").read_text())[
            "final"
        ]["spread"]
        for rule in ("AALV", "WASSERSTEIN")
    }
    # AALV is the geometric mean of the variances, below any power mean; and stored values start under the bound.
    assert spreads["AALV"] < spreads["WASSERSTEIN"]


def test_an_edit_runs_its_cells_only(followed: tuple[Path, list[str]]) -> None:
    folder, _ = followed
    path = folder / "bflp/aggregators/wasserstein.py"
    source = path.read_text(encoding="utf-8")
    command = "snakemake -n tables --configfile my-grid.yaml"
    path.write_text(source.replace("Agueh and Carlier", "Agueh & Carlier") + "# The end.\n", encoding="utf-8")
    done = shell(folder, command)
    assert "Nothing to be done" in done.stdout + done.stderr
    path.write_text(source.replace("2 * np.log", "2.0 * np.log"), encoding="utf-8")
    listed = re.findall(r"output: results/own-rule/cells/(\S+)\.json", shell(folder, command).stdout)
    assert sorted(listed) == [f"fmnist-mini/iid/10/FVBA/WASSERSTEIN/seed{seed}" for seed in (0, 1)]
    path.write_text(source, encoding="utf-8")


# A file outside, and mistakes --------------------------------------------------------------------------------------

GOOD = """
def aggregate(means, log_variances, weights, settings, generator):
    return weights @ means, weights @ log_variances
"""
CELL = "tiny/iid/2/FVBA/MINE/seed0"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.make(tmp_path_factory.mktemp("own"))
    (project.folder / "rules").mkdir()
    (project.folder / "rules/mine.py").write_text(GOOD, encoding="utf-8")
    project.configure(grid={"models": ["FVBA"], "aggregators": ["MINE"]}, aggregator_files={"MINE": "rules/mine.py"})
    return project


def write(project: Project, source: str) -> None:
    (project.folder / "rules/mine.py").write_text(source, encoding="utf-8")


def test_a_mistake_shows_before_anything_runs(project: Project) -> None:
    write(project, "x = 1\n\n  y = 2\n")
    done = project.snakemake("-n")
    assert done.returncode != 0
    assert "error: rules/mine.py, line 3: unexpected indent" in done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    (project.folder / "rules/mine.py").unlink()
    done = project.snakemake("-n")
    assert done.returncode != 0
    assert "error: aggregator_files.MINE: there is no file rules/mine.py" in done.stderr.splitlines()


def test_a_mistake_shows_before_a_cell_trains(project: Project) -> None:
    write(project, "def aggregate(means, log_variances, weights, settings, generator):\n    return means[:, 1]\n")
    done = project.script("train.py", "--configfile", "small.yaml", "--cell", CELL)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(lines) == 1
    assert re.search(r"the aggregator MINE failed when it was tried out: rules/mine\.py: TypeError: ", lines[0])
    assert "Traceback" not in done.stderr
    assert "round" not in done.stderr


def test_what_a_file_outside_imports_of_the_project_counts(project: Project) -> None:
    """A module of the project may be used, and then its edits count; one behind the fingerprint's back is refused."""
    helper = project.folder / "helper.py"
    helper.write_text("def scale():\n    return 1.0\n", encoding="utf-8")
    write(project, f"from helper import scale\n{GOOD.replace('weights @ means', 'scale() * (weights @ means)')}")
    command = [
        sys.executable,
        "-c",
        "from bflp.settings.schema import *; from bflp.grid.plan import *; from pathlib import Path; ",
    ]
    command[-1] += f"print(Plan(load([Path('config.yaml'), Path('small.yaml')])).job(Cell.parse({CELL!r})))"

    def job() -> str:
        return subprocess.run(command, cwd=project.folder, capture_output=True, text=True, check=True).stdout

    before = job()
    helper.write_text("def scale():\n    return 2.0\n", encoding="utf-8")
    assert job() != before
    write(project, f"import importlib\nscale = importlib.import_module('helper').scale\n{GOOD}")
    done = project.script("train.py", "--configfile", "small.yaml", "--cell", CELL)
    assert done.returncode == 1
    assert "the cell ran code that its fingerprint does not cover: helper" in done.stderr
