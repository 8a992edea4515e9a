"""One process at a time per cell."""

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
ATTEMPTS = 100
# `is_held` takes the lock for an instant: it is tried again so many times before it counts as another process's.
LOOKS = 5


@contextlib.contextmanager
def only_one(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock in the cell's folder; the system frees it when the process dies, however it dies.

    The folder is made when it is missing. Raises UserError where another process holds the lock.
    """
    with _open_locked(folder / "lock", name) as file:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _open_locked(path: Path, name: str) -> TextIO:
    for _ in range(ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a+", encoding="utf-8")
        except FileNotFoundError:
            # A cell that ended just now has removed its empty folders.
            continue
        try:
            _lock(file)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(200) or "another process"
            raise UserError(f"{name} is being trained by {holder} already: wait for it, or stop it") from None
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise
            print(
                f"warning: {path.parent} knows no locks: see to it that no other process trains {name}", file=sys.stderr
            )
            return file
        # The lock counts only if its file was not removed, by a cell that ended, before it was ours.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()
    raise UserError(f"the lock {path} can not be made")


def _lock(file: TextIO) -> None:
    """Lock a file. Raises BlockingIOError where another process holds the lock, and does not just look at it."""
    for _ in range(LOOKS):
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.02)
    return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(folder: Path) -> bool | None:
    """Whether a process holds the lock in a cell's folder; None where the file system knows no locks."""
    try:
        with (folder / "lock").open("rb") as file:
            # For an instant; who wants the lock in that very instant tries again.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        return None if error.errno in NOT_SUPPORTED else False
    return False
