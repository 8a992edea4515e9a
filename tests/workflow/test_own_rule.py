"""docs/own-rule.md, followed to the letter in a copy of the project; and what a rule's mistakes look like."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import follow, shell
from small_project import CELLS, Project


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder in which all has been done that the page says, and what the commands printed."""
    folder = tmp_path_factory.mktemp("followed")
    return folder, follow("own-rule.md", folder)


def test_the_row_is_in_the_table(followed: tuple[Path, list[str]]) -> None:
    folder, printed = followed
    table = (folder / "results/own-rule/tables/results10.md").read_text(encoding="utf-8")
    row = next(line for line in table.splitlines() if "MEDIAN" in line)
    assert any(row in text for text in printed)
    assert len(re.findall(r"\d+\.\d+", row)) >= 6
    for table_file in (folder / "results/own-rule/tables").glob("*.*"):
        if table_file.name.startswith(("results", "spread")):
            assert "MEDIAN" in table_file.read_text(encoding="utf-8"), table_file
    assert "4 cells: 4 up to date, 0 would run" in printed[-1]


def test_it_averages_variances(followed: tuple[Path, list[str]]) -> None:
    """AALV's geometric mean of the stored variances, which start below the bound, is less than their clipped mean."""
    folder, _ = followed
    spreads = {
        rule: json.loads((folder / f"results/own-rule/cells/fmnist-mini/iid/10/FVBA/{rule}/seed0.json").read_text())[
            "rounds"
        ][-1]["spread"]
        for rule in ("AALV", "MEDIAN")
    }
    assert spreads["AALV"] < spreads["MEDIAN"]


def test_an_edit_runs_its_cells_only(followed: tuple[Path, list[str]]) -> None:
    folder, _ = followed
    path = folder / "bflp/aggregators/median.py"
    source = path.read_text(encoding="utf-8")
    command = "snakemake -n tables --configfile my-grid.yaml"
    path.write_text(source.replace("Yin et al.", "Yin and others") + "# The end.\n", encoding="utf-8")
    done = shell(folder, command)
    assert "Nothing to be done" in done.stdout + done.stderr
    path.write_text(source.replace("np.log(weights", "1 * np.log(weights"), encoding="utf-8")
    listed = re.findall(r"output: results/own-rule/cells/(\S+)\.json", shell(folder, command).stdout)
    assert sorted(listed) == [f"fmnist-mini/iid/10/FVBA/MEDIAN/seed{seed}" for seed in (0, 1)]
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
    configure(project, {})
    return project


def configure(project: Project, settings: dict[str, Any]) -> None:
    project.configure(
        grid={"models": ["FVBA"], "aggregators": ["MINE", "CF"]},
        aggregators={"MINE": {"file": "rules/mine.py", **settings}},
    )


def write(project: Project, source: str) -> None:
    (project.folder / "rules/mine.py").write_text(source, encoding="utf-8")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("x = 1\n\n  y = 2\n", r"rules/mine\.py, line 3: IndentationError: unexpected indent"),
        ("import nowhere\n" + GOOD, r"rules/mine\.py, line 1: ModuleNotFoundError: No module named 'nowhere'"),
        ("def aggregate(means): ...\n", r"rules/mine\.py, line 1: `aggregate` must take 5 arguments, .*\(means\)"),
        (None, r"there is no file rules/mine\.py"),
    ],
)
def test_a_mistake_shows_before_anything_runs(project: Project, source: str | None, error: str) -> None:
    if source is None:
        (project.folder / "rules/mine.py").unlink()
    else:
        write(project, source)
    done = project.snakemake("-n")
    assert done.returncode != 0
    assert [line for line in done.stderr.splitlines() if re.fullmatch(f"error: .*{error}.*", line)], done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_shows_before_a_cell_trains(project: Project) -> None:
    write(project, "def aggregate(means, log_variances, weights, settings, generator):\n    return means[:, 1]\n")
    done = project.bflp("train", "--configfile", "small.yaml", "--cell", CELL)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(lines) == 1
    assert re.search(r"the aggregator MINE failed when it was tried out with .*rules/mine\.py: TypeError: ", lines[0])
    assert "Traceback" not in done.stderr
    assert "round" not in done.stderr


def test_its_settings_are_its_cells_only(project: Project) -> None:
    """A setting of the rule's own trains its cells again and no others; one that it has not is told."""
    head = "from dataclasses import dataclass\nfrom bflp.aggregators import AggregationSettings\n"
    declared = (
        "@dataclass(frozen=True, kw_only=True)\nclass Settings(AggregationSettings):\n    strength: float = 1.0\n"
    )
    write(project, head + declared + GOOD.replace("weights @ means", "settings.strength * (weights @ means)"))
    configure(project, {"strength": 2})
    done = project.snakemake("--until", "train")
    assert done.returncode == 0, done.stderr
    configure(project, {"strength": 3})
    assert project.planned_cells() == {"FVBA/MINE/seed0"}
    configure(project, {"strenght": 3})
    done = project.snakemake("-n")
    assert done.returncode != 0
    assert re.search(r"error: \S*, line [0-9]+: aggregators\.MINE\.strenght: unknown key", done.stderr)
    assert "Traceback" not in done.stderr
    configure(project, {})


def test_a_rule_gets_the_previous_posterior_and_the_prior(project: Project) -> None:
    """A rule that keeps the prior's mean and the previous variances: nothing is learnt, the spread stays."""
    write(
        project,
        "def aggregate(means, log_variances, weights, settings, generator, previous, prior):\n"
        "    return prior.mean, previous.log_variance\n",
    )
    configure(project, {})
    done = project.bflp("train", "--configfile", "small.yaml", "--cell", CELL)
    assert done.returncode == 0, done.stderr
    rounds = json.loads((project.folder / f"{CELLS}/FVBA/MINE/seed0.json").read_text(encoding="utf-8"))["rounds"]
    assert len(rounds) == 2
    assert rounds[0]["spread"] == rounds[1]["spread"] > 0


def test_what_a_file_outside_imports_of_the_project_counts(project: Project) -> None:
    """A module of the project may be used, and then its edits count."""
    helper = project.folder / "helper.py"
    helper.write_text("def scale():\n    return 1.0\n", encoding="utf-8")
    write(project, f"from helper import scale\n{GOOD.replace('weights @ means', 'scale() * (weights @ means)')}")
    command = [
        sys.executable,
        "-c",
        "from bflp.cli.common import Plan, Settings; from bflp.grid.cell import Cell; "
        "from bflp.settings.read import overlaid, read_file; from pathlib import Path; "
        "settings = Settings.parse(overlaid(map(read_file, (Path('config.yaml'), Path('small.yaml'))))); "
        f"print(Plan(settings).job(Cell.parse({CELL!r})))",
    ]

    def job() -> str:
        return subprocess.run(command, cwd=project.folder, capture_output=True, text=True, check=True).stdout

    before = job()
    helper.write_text("def scale():\n    return 2.0\n", encoding="utf-8")
    assert job() != before
