"""Disks that are full, read-only or of somebody else."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from laboratory import Laboratory, Tally
from small_cell import SmallCell, forked, forked_main, run_main


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own, if the system lets us."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _no_mounting(folder: Path) -> str:
    try:
        with small_disk(folder / "try", "64k"):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"file systems can not be mounted here ({error})"


def full_disk(lab: Laboratory, count: int) -> Tally:
    """A disk that is full but for so many kB, while data, partition, checkpoints and results are written to it."""
    tally = Tally("disk full (a real, small tmpfs) while anything is written")
    tally.skipped = _no_mounting(lab.folder)
    if tally.skipped:
        return tally
    with small_disk(lab.folder / "disk", "3m") as disk:
        cell = SmallCell(disk / "cell")
        steps = {"prepare": cell.prepare_arguments(), "partition": cell.partition_arguments()}
        steps["train"] = cell.train_arguments()
        space = {"prepare": 110, "partition": 12, "train": 480}
        for number in range(count):
            step = ("prepare", "partition", "train", "train")[number % 4]
            for path in (cell.folder / "data", cell.folder / "results"):
                shutil.rmtree(path, ignore_errors=True)
            for before in list(steps)[: list(steps).index(step)]:
                assert forked_main(before, steps[before]).code == 0
            free = lab.random.randrange(0, space[step]) * 1024
            filler = disk / "filler"
            _fill(filler, disk, free)
            end = forked_main(step, steps[step])
            what = f"{step} with {free // 1024} kB left"
            if end.code != 0 and (not end.one_clear_error or "No space left" not in end.text or cell.leftovers()):
                tally.check(False, f"{what}: {end}, left {cell.leftovers()}")
                filler.unlink()
                continue
            filler.unlink()
            if end.code != 0:
                end = forked_main(step, steps[step])
            for after in list(steps)[list(steps).index(step) + 1 :]:
                end = forked_main(after, steps[after]) if end.code == 0 else end
            # Another folder, other settings: the metrics and the model must be the same all the same.
            right = end.code == 0 and cell.outcome() == lab.expected
            tally.check(right, f"{what}: with space again {end}")
    return tally


def _fill(filler: Path, disk: Path, free: int) -> None:
    with filler.open("wb") as file:
        while (left := _free(disk) - free) > 0:
            file.write(bytes(min(left, 65536)))
            file.flush()


def _free(disk: Path) -> int:
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def no_permission(lab: Laboratory) -> Tally:
    """A read-only file system, and folders of somebody else."""
    tally = Tally("read-only file system, folder without permission")
    tally.skipped = _no_mounting(lab.folder)
    if tally.skipped:
        return tally
    with small_disk(lab.folder / "disk", "3m") as disk:
        cell = SmallCell(disk / "cell")
        steps = {"prepare": cell.prepare_arguments(), "partition": cell.partition_arguments()}
        steps["train"] = cell.train_arguments()
        for step, arguments in steps.items():
            before = sorted(cell.folder.rglob("*"))
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            end = forked_main(step, arguments)
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            right = end.one_clear_error and "Read-only file system" in end.text
            tally.check(right and sorted(cell.folder.rglob("*")) == before, f"{step}, read-only: {end}")
            end = forked(partial(_as_nobody, step, arguments))
            right = end.one_clear_error and "Permission denied" in end.text
            tally.check(right and sorted(cell.folder.rglob("*")) == before, f"{step} as nobody: {end}")
            assert forked_main(step, arguments).code == 0
        tally.check(cell.outcome() == lab.expected, "another result in the end")
        # Inputs that can not be read are not damaged.
        cell.clear()
        for path in (cell.data, cell.partition):
            path.chmod(0o600)
            (cell.folder / "results").chmod(0o777)
            end = forked(partial(_as_nobody, "train", steps["train"]))
            tally.check(end.one_clear_error and "Permission denied" in end.text, f"unreadable {path}: {end}")
            path.chmod(0o644)
    return tally


def _as_nobody(script: str, arguments: list[str]) -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    run_main(script, arguments)
