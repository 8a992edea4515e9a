"""Published tables as data: a source is a folder below `published`, and a config that says its set-up and runs it.

published/{key}/numbers.csv: the numbers as printed; source.yaml: what they are, `About`; examples/papers/{key}.yaml:
the set-up, whole. A number is matched by its cell's names, and held against results whatever their settings are; which
of these differ from the published set-up is said beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import ValidationError

from bflp.engine.metrics.registry import METRICS
from bflp.errors import DataError
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.settings.explain import one_line
from bflp.settings.read import read_file
from bflp.settings.schema import load
from bflp.settings.values import NonNegativeInt, PositiveInt, Section

PUBLISHED = Path(__file__).parent / "published"
CONFIGS = Path(__file__).resolve().parents[2] / "examples" / "papers"
KEYS = ["dataset", "partition", "clients", "model", "aggregator"]
# Names stay text, also those that look like numbers.
TEXT = dict.fromkeys(KEYS, str)
UNSET = "unset"  # a setting that is not there, or has its default


class About(Section):
    """What a source's numbers are."""

    name: str
    """What tables and figures call it."""
    title: str
    url: str
    seeds: PositiveInt
    """Runs that a mean is over."""
    error: Literal["standard error", "standard deviation", "none"]
    """What is printed after the ±."""
    decimals: NonNegativeInt
    """Of the means."""
    unlike: Mapping[str, str] = {}
    """Where it differs from what its config runs and no setting can say so: a name of the rows, and how."""
    doubtful: Sequence[str] = ()


@dataclass(frozen=True)
class Source:
    """A source. numbers: KEYS, metric, published, error (as printed, or NaN), deviation (of one seed, or NaN)."""

    key: str
    about: About
    numbers: pd.DataFrame
    plan: Plan

    def differing(self, cell: Cell, settings: Mapping[str, Any]) -> list[str]:
        """In what the settings of a cell of ours differ from the published set-up, a text each."""
        theirs, ours = _flat(self.settings(cell)), _flat(settings)
        keys = [key for key in dict.fromkeys([*theirs, *ours]) if ours.get(key) != theirs.get(key)]
        texts = [
            f"{key}: {ours.get(key, UNSET)} here, {theirs.get(key, UNSET)} there"
            for key in keys
            if key != "evaluation.every"
        ]
        names = (cell.dataset, cell.partition, cell.clients, cell.model, cell.aggregator)
        return [*texts, *(self.about.unlike[name] for name in names if name in self.about.unlike)]

    def settings(self, cell: Cell) -> dict[str, Any]:
        """The published set-up of a cell, in the form of a result's settings."""
        try:
            return self.plan.cell_settings(cell)
        except KeyError as error:
            raise DataError(
                f"{CONFIGS / self.key}.yaml does not describe {error} of {cell}, which is published"
            ) from None


@cache
def sources() -> dict[str, Source]:
    """All sources by key, the paper that this project starts from first. Raises ConfigError and DataError."""
    keys = sorted((file.parent.name for file in PUBLISHED.glob("*/source.yaml")), key=lambda key: (key != "bflp", key))
    return {key: _read(key) for key in keys}


def _read(key: str) -> Source:
    file = PUBLISHED / key / "source.yaml"
    try:
        about = About.model_validate(read_file(file))
    except ValidationError as error:
        raise DataError(f"{file}: {one_line(error)}") from None
    numbers = _numbers(PUBLISHED / key / "numbers.csv")
    per_seed = {"standard error": math.sqrt(about.seeds), "standard deviation": 1.0, "none": math.nan}[about.error]
    # A deviation that is printed as 0.00 may be half a unit of the last digit.
    deviation = (numbers["error"] * per_seed).clip(lower=0.5 * 10**-about.decimals)
    return Source(key, about, numbers.assign(deviation=deviation), Plan(load([CONFIGS / f"{key}.yaml"])))


def _numbers(file: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(file, keep_default_na=False, na_values={"error": [""]}, dtype=TEXT)
        frame = frame.rename(columns={"mean": "published"})[[*KEYS, "metric", "published", "error"]]
        frame = frame.astype({"published": float, "error": float})
    except FileNotFoundError:
        raise DataError(f"there is no {file}") from None
    except (KeyError, ValueError) as error:
        raise DataError(f"{file} must have the columns {', '.join(KEYS)}, metric, mean, error: {error}") from None
    twice = frame[frame.duplicated([*KEYS, "metric"])]
    unknown = sorted({*frame["metric"]} - {*METRICS})
    if unknown or len(twice):
        what = f"unknown metric {unknown[0]}" if unknown else f"is there twice: {'/'.join(twice.iloc[0][KEYS])}"
        raise DataError(f"{file}: {what}")
    return frame


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys."""
    return {key: value for name, part in settings.items() for key, value in _leaves(f"{above}{name}", part)}


def _leaves(key: str, part: Any) -> Iterable[tuple[str, Any]]:
    return _flat(part, f"{key}.").items() if isinstance(part, Mapping) else [(key, part)]
