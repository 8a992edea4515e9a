"""The cores that count are those that this process may use."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bflp.runtime import cores


def test_a_cpu_set_counts() -> None:
    """As `taskset -c` and SLURM set it."""
    first = min(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, [{first}]); from bflp.runtime.cores import available; print(available())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"
    assert 1 <= cores.available() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({}, math.inf),
        ({"cpu.max": "max 100000"}, math.inf),
        ({"cpu.max": "150000 100000"}, 1.5),
        # Of a job in a job the outer one's limit holds, too.
        ({"outer/cpu.max": "200000 100000", "outer/inner/cpu.max": "max 100000"}, 2.0),
        ({"outer/cpu.max": "400000 100000", "outer/inner/cpu.max": "300000 100000"}, 3.0),
    ],
)
def test_a_control_group_counts(tmp_path: Path, files: dict[str, str], share: float) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    own = tmp_path / "own"
    own.write_text("1:name=systemd:/\n0::/outer/inner\n" if len(files) > 1 else "0::/\n")
    assert cores.time_share(tmp_path, own) == share
    assert cores.time_share(tmp_path, tmp_path / "none") == math.inf
