"""Something happens at the n-th file operation of a process: it is killed, gets a signal, or the operation fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Python's audit events of what changes files; opening counts where it is for writing.
CHANGES = ("open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir")


def at_change(folder: Path, number: int, action: Callable[[str], None], again: bool = False) -> None:
    """Call `action` with the file's name before the change `number` (from 1) below `folder`; with `again` at all later.

    An audit hook stays for good, so this is for a child process.
    """
    prefix, count = str(folder), 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in CHANGES or not _is_change(event, arguments, prefix):
            return
        count += 1
        if count == number or (again and count > number):
            action(os.fspath(arguments[0]))

    sys.addaudithook(hook)


def count_changes(folder: Path, report: Path) -> None:
    """Write the number of changes below `folder` to the file `report`, after each."""
    count = 0
    output = os.open(report, os.O_WRONLY | os.O_CREAT)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in CHANGES and _is_change(event, arguments, str(folder)):
            count += 1
            os.pwrite(output, f"{count:8d}".encode(), 0)

    sys.addaudithook(hook)


def _is_change(event: str, arguments: tuple[Any, ...], prefix: str) -> bool:
    path = arguments[0]
    if not isinstance(path, str | os.PathLike):
        return False
    if event == "open":
        flags = arguments[2] or 0
        return os.fspath(path).startswith(prefix) and bool(flags & (os.O_WRONLY | os.O_RDWR))
    # Removing a tree names files relative to its folder.
    relative = event in ("os.remove", "os.rmdir") and arguments[1] != -1
    return relative or os.fspath(path).startswith(prefix)
