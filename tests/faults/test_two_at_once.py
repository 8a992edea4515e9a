"""Two programs on one results folder: the second is told so, and nothing is corrupted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_project import Project

CELL = "tiny/iid/2/FVBA/PPA/seed0"
SNAKEMAKE = (sys.executable, "-m", "snakemake", "--cores", "2", "results/results.csv", "--configfile", "small.yaml")
BY_HAND = (sys.executable, "workflow/scripts/run.py", "train", "--configfile", "small.yaml", "--cell", CELL)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """One cell that takes some seconds."""
    project = Project.make(tmp_path / "project")
    project.configure(
        grid={"models": ["FVBA"], "aggregators": ["PPA"]},
        training={"local_epochs": 300},
        setups={2: {"fraction": 1.0, "rounds": 8}},
        checkpoint_seconds=0,
        results_dir="results",
        data_dir="data",
    )
    return project


def start(project: Project, command: tuple[str, ...]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.Popen(
        command,
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def wait_until_it_trains(project: Project, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not list(project.folder.glob("results/kept/*.checkpoint.safetensors")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_second_workflow_and_a_cell_by_hand_while_the_workflow_trains_it(project: Project) -> None:
    first = start(project, SNAKEMAKE)
    wait_until_it_trains(project, first)
    others = [start(project, BY_HAND), start(project, SNAKEMAKE)]
    (by_hand, _), (second, _) = (other.communicate() for other in others)
    text, _ = first.communicate()
    assert [other.returncode for other in others] == [1, 1]
    assert by_hand.startswith(f"error: {CELL} is being trained by process ")
    assert by_hand.count("\n") == 1
    assert "Directory cannot be locked. Please make sure that no other Snakemake process" in second
    assert "Traceback" not in second
    assert first.returncode == 0, text
    done = project.bflp("verify", "--configfile", "small.yaml")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "1 results are right, 0 missing" in done.stdout


def test_the_workflow_while_a_cell_is_trained_by_hand(project: Project) -> None:
    by_hand = start(project, BY_HAND)
    wait_until_it_trains(project, by_hand)
    workflow = start(project, SNAKEMAKE)
    text, _ = workflow.communicate()
    assert workflow.returncode == 1
    assert f"error: {CELL} is being trained by process {by_hand.pid} on " in text
    text, _ = by_hand.communicate()
    assert by_hand.returncode == 0, text
    # The workflow takes it from there.
    again = start(project, SNAKEMAKE)
    text, _ = again.communicate()
    assert again.returncode == 0, text
    assert "rule train" not in text
    done = project.bflp("verify", "--configfile", "small.yaml")
    assert done.returncode == 0, done.stdout
