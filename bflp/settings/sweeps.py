"""From a sweep to its rows: a method's settings with each value, or each combination of values of several settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from bflp.settings.read import laid

Values = dict[str, Any]  # dotted setting of a method -> value


def rows(name: str, swept: Mapping[str, Sequence[Any]]) -> list[tuple[str, Values]]:
    """The rows of the sweep of a method, `name-value` each, the last setting varying fastest."""
    combinations = [dict(zip(swept, values, strict=True)) for values in product(*swept.values())]
    return [("-".join([name, *map(shown_value, values.values())]), values) for values in combinations]


def shown_value(value: Any) -> str:
    """A value as in a row's name: as YAML has it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def nested(values: Values) -> dict[str, Any]:
    """{"training.momentum": 0.5} -> {"training": {"momentum": 0.5}}"""
    result: dict[str, Any] = {}
    for setting, value in values.items():
        for key in reversed(setting.split(".")):
            value = {key: value}  # noqa: PLW2901
        result = laid(result, value)
    return result
