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
    for size in (20, 40) * 5:
        b"1" * (size << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keep":
    keep_freed()
faults()
print(faults())
"""


def faults(what: str) -> int:
    """Pages that ten blocks of 20 and 40 MB are given anew, after as many before."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, what], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc alone is told so")
def test_the_next_step_gets_the_same_pages() -> None:
    assert faults("not") > 1000
    assert faults("keep") < 100
