"""The paper's grid as Snakemake plans it, and the tools that check the code."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_project import ROOT, Project, checked

from bflp.grid.plan import Plan
from bflp.settings.schema import load


def test_the_papers_grid_has_720_cells(fresh: Project) -> None:
    planned = fresh.planned(configfile=None)
    assert planned["train"] == 720
    assert planned["prepare"] == 3
    assert planned["partition"] == 60
    assert planned["merge"] == planned["tables"] == 1
    # A dry run leaves nothing behind.
    assert not (fresh.folder / "results").exists()


def test_the_demo_has_48_cells_and_an_overlay_of_it_as_many_as_it_says(fresh: Project) -> None:
    shutil.copytree(ROOT / "examples", fresh.folder / "examples")
    planned = fresh.planned(configfile="examples/demo.yaml")
    assert planned["train"] == 48
    assert planned["prepare"] == 1
    assert planned["partition"] == 4
    # Over the demo, which is over config.yaml: lists replace, mappings merge, as where programs read these files.
    (fresh.folder / "over.yaml").write_text(
        "grid: {seeds: [5], clients: [20]}\nsetups: {20: {fraction: 0.5, rounds: 1}}\n"
    )
    planned = fresh.planned("--configfile", "examples/demo.yaml", "over.yaml", configfile=None)
    files = [fresh.folder / name for name in ("config.yaml", "examples/demo.yaml", "over.yaml")]
    settings = load(files)
    assert planned["train"] == len(Plan(settings).cells) == 24
    assert settings.grid.seeds == [5]
    assert sorted(settings.setups) == ["10", "100", "20"]


def test_snakemake_finds_nothing_to_improve(fresh: Project) -> None:
    done = checked(fresh.snakemake("--lint", configfile=None))
    assert "in a good condition" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [["snakefmt", "--check", "Snakefile"], ["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]],
    ids=" ".join,
)
def test_the_code_is_as_the_tools_want_it(command: list[str]) -> None:
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
