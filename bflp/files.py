"""Files that are whole or absent: written under a temporary name, then renamed."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` on success, remove it on failure.

    The folder is made when it is missing. Raises OSError as the file system does (full disk, no permission), naming
    `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        # A full disk may show only when the data is flushed, so that is done before the name is given.
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        # A full disk names no file at all.
        if error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove temporary files of `path` that killed programs left. Nobody else may be writing it."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` (UTF-8) to `path`, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256_of(path: Path) -> str:
    """Of a file's content, as hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(value: Any) -> str:
    """One string for one value: sorted keys, no spaces. NaN and infinity are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
