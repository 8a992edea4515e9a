"""`bflp archive` of a grid that the workflow has run, and `bflp verify` of it elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from small_project import ROOT, Project, checked, one_error

RUN = ROOT / "workflow/scripts/run.py"


def verify(archive: Path, program: Path = RUN) -> subprocess.CompletedProcess[str]:
    """In a folder without config, data or results."""
    command = [sys.executable, "-B", str(program), "verify", str(archive)]
    return subprocess.run(command, cwd=archive.parent, capture_output=True, text=True, check=False)


def test_a_run_in_one_file(finished_run: tuple[Project, object], tmp_path: Path) -> None:
    project, path = finished_run[0], tmp_path / "paper.zip"
    arguments = ("--models", "--configfile", "small.yaml", "--config", "processes=1")
    done = checked(project.bflp("archive", path, *arguments))
    assert done.stdout.startswith(f"{path}: 6 cells, ")
    assert "6 cells" in checked(verify(path)).stdout

    unpacked = tmp_path / "elsewhere" / "unpacked"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(unpacked)
    assert "all as they were written" in checked(verify(unpacked)).stdout
    # What is in it is what the workflow has made.
    for made in ("results.csv", "tables", "figures/tiny"):
        for file in (project.results / made).rglob("*") if "." not in made else [project.results / made]:
            if file.is_file():
                assert (unpacked / file.relative_to(project.results)).read_bytes() == file.read_bytes(), file
    names = [file.name for file in sorted((unpacked / "config").iterdir())]
    assert names == ["1-config.yaml", "2-small.yaml", "3-command-line.yaml"]
    assert (unpacked / "config/2-small.yaml").read_bytes() == (project.folder / "small.yaml").read_bytes()
    assert json.loads((unpacked / "settings.json").read_text())["training"]["learning_rate"] == 0.05
    # The code in it can do it, too.
    checked(verify(path, unpacked / "code/workflow/scripts/run.py"))

    result = unpacked / "cells/tiny/iid/2/FVBA/EAA/seed0.json"
    content = bytearray(result.read_bytes())
    content[len(content) // 2] ^= 1
    result.write_bytes(content)
    done = verify(unpacked)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stdout == f"wrong:\n  {result}: was changed\n{unpacked}: 1 file(s) wrong\n"


def test_one_line_for_what_cannot_be_archived_or_verified(fresh: Project, tmp_path: Path) -> None:
    arguments = ("--configfile", "small.yaml")
    assert "results.csv must end with .zip" in one_error(fresh.bflp("archive", "results.csv", *arguments))
    done = fresh.bflp("archive", tmp_path / "a.zip", *arguments)
    assert done.returncode == 1 and done.stderr.startswith(
        "error: 6 result(s) cannot be used:\n  there is no result of"
    )
    assert not (tmp_path / "a.zip").exists()
    assert "there is no file" in one_error(verify(tmp_path / "a.zip"))
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04")
    assert "is not a whole zip file" in one_error(verify(tmp_path / "a.zip"))
