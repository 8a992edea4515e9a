"""Published tables as data: a source is a folder below `published`, and a config that says its set-up and runs it.

published/{key}/numbers.csv: the numbers as printed; source.yaml: what they are, `About`; examples/papers/{key}.yaml:
the set-up, whole. A number is matched by its cell's names, and held against results whatever their settings are; which
of these differ from the published set-up is said beside it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import BeforeValidator, ValidationError

from bflp.aggregators import names as rules
from bflp.datasets.registry import BUILT_IN
from bflp.engine.metrics.registry import METRICS
from bflp.errors import DataError
from bflp.grid.cell import NO_AGGREGATOR, Cell
from bflp.grid.plan import Plan
from bflp.results.frame import NAMES
from bflp.settings.explain import one_line
from bflp.settings.read import read_file
from bflp.settings.schema import load
from bflp.settings.values import AnyFloat, NonNegativeFloat, NonNegativeInt, PositiveInt, Section

PUBLISHED = Path(__file__).parent / "published"
CONFIGS = Path(__file__).resolve().parents[2] / "examples" / "papers"
KEYS = list(NAMES)
# Names stay text, also those that look like numbers.
TEXT = dict.fromkeys(KEYS, str)
UNSET = "unset"  # a setting that is not there, or has its default
FINAL = ("ece_bins", "monte_carlo_samples")


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


class Number(Section, extra="ignore"):
    """A line of numbers.csv."""

    dataset: str
    partition: str
    clients: str
    model: str
    aggregator: str
    metric: Literal[tuple(METRICS)]  # type: ignore[valid-type]
    mean: AnyFloat
    error: Annotated[NonNegativeFloat | None, BeforeValidator(lambda text: text or None)]

    @property
    def cell(self) -> Cell:
        """With seed 0."""
        return Cell(self.dataset, self.partition, self.clients, self.model, self.aggregator, 0)


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
        names = (*cell.block, *cell.row)
        return [*texts, *(self.about.unlike[name] for name in names if name in self.about.unlike)]

    def settings(self, cell: Cell) -> dict[str, Any]:
        """The published set-up of a cell, as from `planned`."""
        return planned(self.plan, cell)


def set_up(settings: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """What a cell's numbers depend on, in the form in which set-ups are compared: the settings of its result and, as
    `final`, those of its evaluation that change a number."""
    return {**settings, "final": {key: evaluation[key] for key in FINAL if key in evaluation}}


def planned(plan: Plan, cell: Cell) -> dict[str, Any]:
    """`set_up` of a cell of a plan, with the file in whose place a built-in data set would be."""
    own = plan.settings.source(cell.dataset) if cell.dataset in BUILT_IN else None
    found = set_up(plan.cell_settings(cell), plan.evaluation_settings(cell))
    return {**found, **({"data": own} if own else {})}


@cache
def sources() -> dict[str, Source]:
    """All sources by key, the paper that this project starts from first. Raises ConfigError and DataError."""
    keys = sorted((file.name for file in PUBLISHED.iterdir() if file.is_dir()), key=lambda key: (key != "bflp", key))
    found = {key: _read(key) for key in keys if key[0] not in "._"}
    names = [source.about.name for source in found.values()]
    for key, source in found.items():
        if names.count(source.about.name) > 1:
            raise DataError(f"{PUBLISHED / key}/source.yaml: another source has the name {source.about.name}, too")
    return found


def _read(key: str) -> Source:
    file = PUBLISHED / key / "source.yaml"
    try:
        about = About.model_validate(read_file(file))
    except ValidationError as error:
        raise DataError(f"{file}: {one_line(error)}") from None
    plan = Plan(load([CONFIGS / f"{key}.yaml"]))
    numbers = _numbers(PUBLISHED / key / "numbers.csv", about, plan)
    unknown = [name for name in about.unlike if not numbers[KEYS].isin([name]).any(axis=None)]
    if unknown:
        raise DataError(f"{file}: unlike: {unknown[0]} is not in numbers.csv")
    per_seed = {"standard error": math.sqrt(about.seeds), "standard deviation": 1.0, "none": math.nan}[about.error]
    # A deviation that is printed as 0.00 may be half a unit of the last digit.
    deviation = (numbers["error"] * per_seed).clip(lower=0.5 * 10**-about.decimals)
    return Source(key, about, numbers.assign(deviation=deviation), plan)


def _numbers(file: Path, about: About, plan: Plan) -> pd.DataFrame:
    numbers: dict[tuple[Cell, str], Number] = {}
    unknown = cache(partial(_unknown, plan))
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            lines = csv.DictReader(opened)
            for line in lines:
                number = Number.model_validate(line)
                key = number.cell, number.metric
                wrong = "is there twice" if key in numbers else unknown(number.cell) or _mistake(number, about)
                if wrong:
                    row = "/".join([*number.cell.block, *number.cell.row])
                    raise DataError(f"{file}, line {lines.line_num}: {number.metric} of {row}: {wrong}")
                numbers[key] = number
    except FileNotFoundError:
        raise DataError(f"there is no {file}") from None
    except ValidationError as error:
        raise DataError(f"{file}, line {lines.line_num}: {one_line(error)}") from None
    if not numbers:
        raise DataError(f"{file} has no numbers")
    frame = pd.DataFrame([number.model_dump() for number in numbers.values()]).astype({"error": float})
    return frame.rename(columns={"mean": "published"})


def _unknown(plan: Plan, cell: Cell) -> str | None:
    """What of a published row its config does not have."""
    if cell.dataset not in BUILT_IN and not plan.settings.source(cell.dataset):
        return f"unknown data set {cell.dataset}"
    if cell.aggregator not in (NO_AGGREGATOR, *rules()):
        return f"unknown rule {cell.aggregator} (none: {NO_AGGREGATOR})"
    try:
        plan.cell_settings(cell)
    except KeyError as error:
        return f"{error} is not in its file below {CONFIGS}"
    return None


def _mistake(number: Number, about: About) -> str | None:
    """Why a number cannot be what it is said to be."""
    if METRICS[number.metric].unit == "%" and not 0 <= number.mean <= 100:
        return "must be in %"
    if (number.error is None) != (about.error == "none"):
        return f"its error is not as source.yaml says: {about.error}"
    return None


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys."""
    return {key: value for name, part in settings.items() for key, value in _leaves(f"{above}{name}", part)}


def _leaves(key: str, part: Any) -> Iterable[tuple[str, Any]]:
    return _flat(part, f"{key}.").items() if isinstance(part, Mapping) else [(key, part)]
