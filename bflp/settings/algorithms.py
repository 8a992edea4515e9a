"""Loading a federated algorithm, built in or a person's own, with its mistakes told in one line that names the file.

Outside the wall: what is checked here, and in which words, changes no number.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from bflp import algorithms
from bflp.errors import ConfigError
from bflp.settings.own_files import check_settings, described, executed, place_of

# What an algorithm may define, see bflp.algorithms: functions with their arguments, and lists of texts.
FUNCTIONS = {
    "local": ("model", "server", "client", "facts", "settings"),
    "report": ("model", "trained", "server", "client", "facts", "settings"),
    "server": ("model", "reports", "server", "facts", "settings"),
    "refuse": ("settings", "training"),
}
LISTS = ("KINDS", "OPTIMISERS", "BROADCAST", "DEFAULT_AGGREGATORS")


def algorithm_module(chosen: Mapping[str, Any]) -> ModuleType:
    """The module of a federated algorithm: {"name": ...} in bflp/algorithms, or {"file": ...}, which is executed.

    Raises ConfigError for a file that cannot be executed or is no algorithm.
    """
    if "file" not in chosen:
        return _built_in(chosen["name"])
    file = algorithm_file(chosen)
    if not file.is_file():
        raise ConfigError(f"there is no file {file}")
    return _checked(file, lambda: executed("algorithm", file))


def algorithm_file(chosen: Mapping[str, Any]) -> Path:
    """Where an algorithm lies."""
    return Path(chosen["file"]) if "file" in chosen else Path(algorithms.__file__).with_name(f"{chosen['name']}.py")


@cache
def _built_in(name: str) -> ModuleType:
    if name == "fedavg":
        return importlib.import_module("bflp.algorithms.fedavg")  # which defines nothing: all that is left out is its
    return _checked(algorithm_file({"name": name}), lambda: importlib.import_module(f"bflp.algorithms.{name}"))


def _checked(file: Path, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        module = load()
    except Exception as error:
        raise ConfigError(described(file, error)) from None
    for name in LISTS:
        if not isinstance(getattr(module, name, ()), tuple | list):
            raise ConfigError(f"{place_of(file, name)}: {name} must be a tuple of texts, such as ('none',)")
    _check_functions(module, file)
    if hasattr(module, "Settings"):
        if not is_dataclass(module.Settings):
            raise ConfigError(f"{place_of(file, 'Settings')}: write `@dataclass(frozen=True)` above `class Settings:`")
        check_settings(module.Settings, file, file="path", name="algorithm")
    if not getattr(module, "SENDS_PARAMETERS", True) and not hasattr(module, "server"):
        raise ConfigError(
            f"{place_of(file, 'SENDS_PARAMETERS')}: where clients send no parameters, a function `server` must make "
            "the model"
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
            raise ConfigError(f"{place_of(file, name)}: `{name}` must be a function of ({arguments})") from None
