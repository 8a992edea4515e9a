"""A page of the documents, followed to the letter in a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from small_project import ROOT, Project


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line as someone types it who has activated the virtual environment.

    The command `bflp` is installed for this checkout; PYTHONPATH has it take the copy's code.
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(folder)}
    return subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def blocks_of(page: str) -> list[tuple[str, str, str]]:
    """Paragraph before a block of docs/`page`, the block's language, its content."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"([^\n]*(?:\n[^\n]+)*)\n\n```(\w+)\n(.*?)```", text, flags=re.DOTALL)


def python(page: str, folder: Path) -> str:
    """Run a page's Python as one program in `folder`; what it prints."""
    (folder / "page.py").write_text("\n".join(content for _, kind, content in blocks_of(page) if kind == "python"))
    done = shell(folder, "python page.py")
    assert done.returncode == 0, done.stderr
    return done.stdout


def follow(page: str, folder: Path) -> list[str]:
    """Write the files and run the commands of docs/`page`; what the commands printed. A block's file is the last one
    that the paragraph before it names."""
    blocks = blocks_of(page)
    Project.make(folder)
    shutil.copytree(ROOT / "examples", folder / "examples")
    printed = []
    for paragraph, language, content in blocks:
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
    return printed
