"""How many cores this process may use; not how many the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def available() -> int:
    """At least 1: its CPU set (taskset, SLURM, containers), or less where its share of their time is less."""
    # macOS has no CPU sets.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.floor(min(cores, time_share())))


def time_share(cgroups: Path = CGROUPS, own: Path = OWN) -> float:
    """The cores' worth of time that control groups (version 2) give this process, the least of those it is in."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    group = cgroups / next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    least = math.inf
    for folder in (group, *group.parents):
        try:
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
            least = min(least, int(quota) / int(period))
        except (OSError, ValueError):  # no file, or "max"
            continue
    return least
