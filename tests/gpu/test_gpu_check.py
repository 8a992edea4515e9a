"""What is measured on a GPU runs to its end without one."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def test_the_check_runs_on_a_few_images() -> None:
    command = ["benchmarks/gpu_check.sh", sys.executable, "--tiny"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("bmm us", "stack of ten", "plain loop", "aten::bmm", "60 cells", "days on"):
        assert words in done.stdout
    assert done.stdout.count("== status 0") == 3
