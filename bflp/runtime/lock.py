"""Advisory locks on files: one process at a time per cell, so many cells per GPU.

The system frees a lock when its process ends, however it ends. Lock files stay where they are.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from bflp.errors import UserError

NOT_SUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
# `is_held` takes a lock for an instant: it is tried again so many times before it counts as another process's.
LOOKS = 5


@contextlib.contextmanager
def only_one(path: Path, name: str) -> Iterator[None]:
    """Hold the lock of a cell. Raises UserError where another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = take(path)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
        print(
            f"warning: {path.parent} does not support file locks; make sure that no other process trains {name}",
            file=sys.stderr,
        )
        yield
        return
    if file is None:
        raise UserError(f"{name} is being trained by {holder(path)} already: wait for it, or stop it")
    with file:
        yield


def take(path: Path) -> TextIO | None:
    """The file, locked until it is closed, naming this process; None when another process has it. Raises OSError."""
    file = path.open("a", encoding="utf-8")
    try:
        for look in range(LOOKS):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if look == LOOKS - 1:
                    file.close()
                    return None
                time.sleep(0.02)
    except OSError:
        file.close()
        raise
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}")
    file.flush()
    return file


def holder(path: Path) -> str:
    """Who holds a lock, in words."""
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8")[:200] or "another process"
    return "another process"


def is_held(path: Path) -> bool | None:
    """Whether a process holds a lock; None where the file system does not support locks."""
    try:
        with path.open("rb") as file:
            # For an instant; who wants the lock in that very instant tries again.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        return None if error.errno in NOT_SUPPORTED else False
    return False
