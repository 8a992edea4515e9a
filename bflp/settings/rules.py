"""Loading a rule's file, built in or the user's own, with its mistakes told in one line that names the file.

Outside the wall: what is checked here, and in which words, changes no number.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from bflp.aggregators import ARGUMENTS, FURTHER, SHARED, AggregationSettings, Rule, rule_file
from bflp.errors import ConfigError

# What an algorithm may define, see bflp.algorithms: functions with their arguments, and lists of texts.
FUNCTIONS = {
    "local": ("model", "server", "client", "facts", "settings"),
    "report": ("model", "trained", "server", "client", "facts", "settings"),
    "server": ("model", "reports", "server", "facts", "settings"),
    "refuse": ("settings", "training"),
}
LISTS = ("KINDS", "OPTIMISERS", "BROADCAST", "DEFAULT_AGGREGATORS")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def load_rule(name: str, file: Path | None = None) -> Rule:
    """The rule `name` of bflp/aggregators, or that of a Python file outside the package, which is executed.

    Raises ConfigError, naming the file and, where there is one, the line.
    """
    path = file or rule_file(name)
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    try:
        module = executed(name, file) if file else importlib.import_module(f"bflp.aggregators.{name.lower()}")
    except Exception as error:
        raise ConfigError(described(path, error)) from None
    function = getattr(module, "aggregate", None)
    if not callable(function):
        raise ConfigError(f"{_place(path, 'aggregate')} must define a function `aggregate({', '.join(ARGUMENTS)})`")
    reads = getattr(module, "READS", SHARED)
    if not isinstance(reads, tuple | list) or any(word not in SHARED for word in reads):
        raise ConfigError(f"{_place(path, 'READS')}: READS must be () or {SHARED}, not {reads!r}")
    settings = getattr(module, "Settings", AggregationSettings)
    # A class without the decorator inherits the base's fields, and its own would silently be no settings.
    if (
        not isinstance(settings, type)
        or not issubclass(settings, AggregationSettings)
        or "__dataclass_fields__" not in vars(settings)
    ):
        raise ConfigError(
            f"{_place(path, 'Settings')}: write `@dataclass(frozen=True, kw_only=True)` and below it "
            "`class Settings(AggregationSettings):`"
        )
    _check_settings(settings, path, file="path")
    return Rule(function, tuple(reads), settings, _asks(path, function))


def described(file: Path, error: Exception) -> str:
    """An error of a rule in one line: the file, the last of its lines that took part, what was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).absolute() == file.absolute()]
    message = str(error)
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines, message = [error.lineno] if error.lineno else [], error.msg
    place = f"{file}, line {lines[-1]}" if lines else str(file)
    return f"{place}: {type(error).__name__}: {' '.join(message.split())}"


def algorithm_module(chosen: Mapping[str, Any]) -> ModuleType:
    """The module of a federated algorithm: {"name": ...} in bflp/algorithms, or {"file": ...}, which is executed.

    Raises ConfigError for a file that cannot be executed or is no algorithm.
    """
    if "file" not in chosen:
        return importlib.import_module(f"bflp.algorithms.{chosen['name']}")
    file = Path(chosen["file"])
    if not file.is_file():
        raise ConfigError(f"there is no file {file}")
    try:
        module = executed("algorithm", file)
    except Exception as error:
        raise ConfigError(described(file, error)) from None
    for name in LISTS:
        if not isinstance(getattr(module, name, ()), tuple | list):
            raise ConfigError(f"{_place(file, name)}: {name} must be a tuple of texts, such as ('none',)")
    _check_functions(module, file)
    if hasattr(module, "Settings"):
        if not is_dataclass(module.Settings):
            raise ConfigError(f"{_place(file, 'Settings')}: write `@dataclass(frozen=True)` above `class Settings:`")
        _check_settings(module.Settings, file, file="path", name="algorithm")
    if not getattr(module, "SENDS_PARAMETERS", True) and not hasattr(module, "server"):
        raise ConfigError(
            f"{_place(file, 'SENDS_PARAMETERS')}: where clients send no parameters, a function `server` must make the "
            "model"
        )
    return module


def _check_functions(module: ModuleType, file: Path) -> None:
    found = {name: getattr(module, name) for name in FUNCTIONS if hasattr(module, name)}
    if not found.keys() - {"refuse"}:
        raise ConfigError(f"{file}: an algorithm must define a function `local`, `report` or `server`")
    for name, function in found.items():
        try:
            inspect.signature(function).bind(*FUNCTIONS[name])
        except TypeError:
            arguments = ", ".join(FUNCTIONS[name])
            raise ConfigError(f"{_place(file, name)}: `{name}` must be a function of ({arguments})") from None


def _check_settings(settings: Any, path: Path, **taken: str) -> None:
    """taken: keys that mean something else in the config."""
    for name, what in taken.items():
        if name in (field.name for field in fields(settings)):
            place = _place(path, "Settings")
            raise ConfigError(f"{place}: no setting may be called `{name}`: in the config that is the {what}")
    try:
        get_type_hints(settings)
    except Exception as error:
        raise ConfigError(f"{_place(path, 'Settings')}: {type(error).__name__}: {error}") from None


def executed(name: str, file: Path) -> ModuleType:
    """A person's own file as a module."""
    # Compiled here, not by importlib: its cache of byte code misses an edit within a second that keeps the length.
    module = ModuleType(f"bflp_rule_{name.lower()}")
    module.__file__ = str(file)
    # Dataclasses look up the module of their annotations there.
    sys.modules[module.__name__] = module
    exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    return module


def _asks(file: Path, function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some compiled functions have none that can be read; the trial before the training tells.
        return ()
    named = [parameter.name for parameter in signature.parameters.values() if parameter.kind in _BY_NAME]
    asks = tuple(name for name in FURTHER if name in named)
    try:
        signature.bind(*ARGUMENTS, **dict.fromkeys(asks))
    except TypeError:
        raise ConfigError(
            f"{_place(file, 'aggregate')}: `aggregate` must take {len(ARGUMENTS)} arguments, {', '.join(ARGUMENTS)}, "
            f"and beside them at most `previous` and `prior`; it takes {signature}"
        ) from None
    return asks


def _place(file: Path, name: str) -> str:
    """The file and, where it can be seen, the line that defines `name`."""
    source = file.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [number for number, line in enumerate(source, 1) if re.match(rf"(def |class )?{name}\b", line)]
    return f"{file}, line {lines[-1]}" if lines else str(file)
