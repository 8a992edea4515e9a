"""Copies of the project for each test: fresh, or with a grid that the workflow has finished."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_project import Project


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, subprocess.CompletedProcess[str]]:
    """The small grid, run once by the real workflow, and what that printed. Not to be changed."""
    project = Project.make(tmp_path_factory.mktemp("finished") / "a project; (new) & 'quoted'")
    return project, project.snakemake()


@pytest.fixture
def finished(finished_run: tuple[Project, object], tmp_path: Path) -> Iterator[Project]:
    """A copy of the finished grid, with all times and with Snakemake's records."""
    folder = tmp_path / "project"
    shutil.copytree(finished_run[0].folder, folder, symlinks=True)
    yield Project(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def fresh(tmp_path: Path) -> Project:
    """A copy of the project in which nothing has run."""
    return Project.make(tmp_path / "fresh")
