"""The metrics by name: one file each in this folder, and those of bflp.engine.evaluators, which are measured on demand.

A metric's file holds TITLE, UNIT, HIGHER_IS_BETTER (None where neither is better), DIGITS (decimals that tables show)
and a function `metric(predictions) -> float | None`. Files are found by name, so that a new one affects no other; this
module is imported by no metric, so that training covers only the metrics that it measures.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from bflp.engine import evaluators
from bflp.engine.fairness import CLIENT_METRICS, SUMMARIES
from bflp.engine.predictions import CURVES, Predictions


@dataclass(frozen=True)
class Metric:
    """A metric of the final model. function: None where it is a summary over clients (bflp.engine.fairness), or is
    measured on demand (bflp.engine.evaluators)."""

    name: str
    label: str
    unit: str
    higher_is_better: bool | None
    digits: int
    function: Callable[[Predictions], float | None] | None

    @property
    def title(self) -> str:
        """With the unit, as over a table's column."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@cache
def filed() -> tuple[str, ...]:
    """Those with a file in this folder: first what is measured every round."""
    files = sorted(file.stem for file in Path(__file__).parent.glob("*.py"))
    return (*CURVES, *(name for name in files if name not in (*CURVES, "__init__", "registry")))


@cache
def on_demand() -> dict[str, str]:
    """Those that are measured on demand, and by which evaluator each."""
    return {metric: name for name in evaluators.names() for metric in _evaluator(name).METRICS}


def _evaluator(name: str) -> ModuleType:
    return importlib.import_module(f"bflp.engine.evaluators.{name}")


@cache
def names() -> list[str]:
    """All names: those with a file, then the summaries over clients, then those on demand."""
    return [*filed(), *(f"clients_{name}_{what}" for name in CLIENT_METRICS for what in SUMMARIES), *on_demand()]


class _Registry(Mapping[str, Metric]):
    """Name -> Metric; a metric's file is imported when it is asked for."""

    def __getitem__(self, name: str) -> Metric:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(names())

    def __len__(self) -> int:
        return len(names())


METRICS: Mapping[str, Metric] = _Registry()


@cache
def _load(name: str) -> Metric:
    if name in filed():
        module = importlib.import_module(f"bflp.engine.metrics.{name}")
        return Metric(name, module.TITLE, module.UNIT, module.HIGHER_IS_BETTER, module.DIGITS, module.metric)
    if name not in names():
        raise KeyError(name)
    if name.startswith("clients_"):
        of, what = name.removeprefix("clients_").split("_", 1)
        base, (words, unit, higher_is_better) = _load(of), SUMMARIES[what]
        better = base.higher_is_better if higher_is_better is None else higher_is_better
        return Metric(
            name,
            words.format(base.label if base.label.isupper() else base.label.lower()),
            base.unit if unit is None else unit,
            better,
            base.digits,
            None,
        )
    title, unit, better, digits = _evaluator(on_demand()[name]).METRICS[name]
    return Metric(name, title, unit, better, digits, None)
