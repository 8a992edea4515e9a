"""A person's own Python files: executing one, and telling its mistakes in one line that names file and line.

Outside the wall: what is checked here, and in which words, changes no number.
"""

from __future__ import annotations

import re
import sys
import traceback
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from bflp.errors import ConfigError


def executed(name: str, file: Path) -> ModuleType:
    """A person's own file as a module."""
    # Compiled here, not by importlib: its cache of byte code misses an edit within a second that keeps the length.
    module = ModuleType(f"bflp_own_{name.lower()}")
    module.__file__ = str(file)
    # Dataclasses look up the module of their annotations there.
    sys.modules[module.__name__] = module
    exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    return module


def described(file: Path, error: Exception) -> str:
    """An error of such a file in one line: the file, the last of its lines that took part, what was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).absolute() == file.absolute()]
    message = str(error)
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines, message = [error.lineno] if error.lineno else [], error.msg
    place = f"{file}, line {lines[-1]}" if lines else str(file)
    return f"{place}: {type(error).__name__}: {' '.join(message.split())}"


def place_of(file: Path, name: str) -> str:
    """The file and, where it can be seen, the line that defines `name`."""
    source = file.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [number for number, line in enumerate(source, 1) if re.match(rf"(def |class )?{name}\b", line)]
    return f"{file}, line {lines[-1]}" if lines else str(file)


def check_settings(settings: Any, path: Path, **taken: str) -> None:
    """Raise ConfigError unless the dataclass can be read, and names no setting as the keys of `taken`, which mean
    something else in the config."""
    for name, what in taken.items():
        if name in (field.name for field in fields(settings)):
            place = place_of(path, "Settings")
            raise ConfigError(f"{place}: no setting may be called `{name}`: in the config that is the {what}")
    try:
        get_type_hints(settings)
    except Exception as error:
        raise ConfigError(f"{place_of(path, 'Settings')}: {type(error).__name__}: {error}") from None
