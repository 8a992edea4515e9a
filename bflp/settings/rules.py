"""Loading an aggregation rule, built in or a person's own, with its mistakes told in one line that names the file.

Outside the wall: what is checked here, and in which words, changes no number.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bflp.aggregators import ARGUMENTS, FURTHER, SHARED, AggregationSettings, Rule, rule_file
from bflp.errors import ConfigError
from bflp.settings.own_files import check_settings, described, executed, place_of

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
        raise ConfigError(f"{place_of(path, 'aggregate')} must define a function `aggregate({', '.join(ARGUMENTS)})`")
    reads = getattr(module, "READS", SHARED)
    if not isinstance(reads, tuple | list) or any(word not in SHARED for word in reads):
        raise ConfigError(f"{place_of(path, 'READS')}: READS must be () or {SHARED}, not {reads!r}")
    settings = getattr(module, "Settings", AggregationSettings)
    # A class without the decorator inherits the base's fields, and its own would silently be no settings.
    if (
        not isinstance(settings, type)
        or not issubclass(settings, AggregationSettings)
        or "__dataclass_fields__" not in vars(settings)
    ):
        raise ConfigError(
            f"{place_of(path, 'Settings')}: write `@dataclass(frozen=True, kw_only=True)` and below it "
            "`class Settings(AggregationSettings):`"
        )
    check_settings(settings, path, file="path")
    return Rule(function, tuple(reads), settings, _asks(path, function))


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
            f"{place_of(file, 'aggregate')}: `aggregate` must take {len(ARGUMENTS)} arguments, {', '.join(ARGUMENTS)}, "
            f"and beside them at most `previous` and `prior`; it takes {signature}"
        ) from None
    return asks
