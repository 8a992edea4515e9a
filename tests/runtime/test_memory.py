"""Memory that is freed stays with the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from bflp.runtime.memory import keep_freed

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step = [b"1" * (30 << 20) for _ in range(3)]
        del step
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keep":
    keep_freed()
faults()
print(faults())
"""


def faults(what: str) -> int:
    """Pages that five steps with three blocks of 30 MB are given anew, after as many before."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, what], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc alone is told so")
def test_the_next_step_gets_the_same_pages() -> None:
    assert faults("not") > 1000
    assert faults("keep") < 100
