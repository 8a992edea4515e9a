"""Aggregation rules for Gaussian posteriors: one file per rule, holding one pure function `aggregate`.

    aggregate(means, log_variances, weights, settings, generator) -> (mean, log_variance)

with `means` and `log_variances` [K, P] float64, one row per active client, `weights` [K] float64 summing to 1,
`settings` an `AggregationSettings`, `generator` a `numpy.random.Generator`, and the results [P].

A rule's module is found by its name in lower case and imported only when it is used, so that a change of one rule
concerns no other. This module imports none of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class AggregationSettings:
    """What a rule may depend on besides the posteriors.

    bounds: lowest and highest log variance in use; a rule clips its input to them unless its equation says otherwise.
    arithmetic: "exact" follows the equations, "reference" the paper's program where the two differ.
    population: size N of PPA's population.
    """

    bounds: tuple[float, float] = (-8.0, 8.0)
    arithmetic: Literal["exact", "reference"] = "exact"
    population: int = 1000


Rule: TypeAlias = Callable[[Array, Array, Array, AggregationSettings, np.random.Generator], tuple[Array, Array]]

# What the built-in rules read of the settings beyond the bounds. A cell's result records only what it depends on, so
# that a changed PPA population concerns the PPA cells alone. Rules that are not listed may read everything.
_READS: dict[str, tuple[str, ...]] = {
    "EAA": ("arithmetic",),
    "GAA": ("arithmetic",),
    "AALV": (),
    "PPA": ("arithmetic", "population"),
    "CF": (),
}


def reads(name: str) -> tuple[str, ...]:
    """Which of "arithmetic" and "population" the rule reads."""
    return _READS.get(name, ("arithmetic", "population"))


def is_rule_name(name: str) -> bool:
    """Whether a rule may be called so ("none" stands for the deterministic models)."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{,99}", name) is not None and name.lower() != "none"


def built_in() -> list[str]:
    """The names of the rules in this folder, the paper's five first, in the paper's order."""
    files = (path.stem for path in Path(__file__).parent.glob("*.py"))
    others = sorted(stem.upper() for stem in files if is_rule_name(stem))
    return [*_READS, *(name for name in others if name not in _READS)]


def module_name(name: str) -> str:
    """The importable module of a rule in this folder."""
    return f"{__name__}.{name.lower()}"


def load(name: str, file: Path | None = None) -> Rule:
    """The `aggregate` function of a rule: of this folder, or of a Python file outside the package.

    Raises AttributeError, naming the file, where there is no such function.
    """
    if file is None:
        module: Any = importlib.import_module(module_name(name))
    else:
        spec = importlib.util.spec_from_file_location(f"bflp_rule_{name.lower()}", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    if not callable(getattr(module, "aggregate", None)):
        raise AttributeError(f"{module.__file__} must define a function `aggregate`")
    rule: Rule = module.aggregate
    return rule
