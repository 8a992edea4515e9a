"""Aggregation rules for Gaussian posteriors: one file per rule, holding one pure function `aggregate`.

    aggregate(means, log_variances, weights, settings, generator) -> (mean, log_variance)

with `means` and `log_variances` [K, P] float64, one row per active client, `weights` [K] float64 summing to 1,
`settings` an `AggregationSettings`, `generator` a `numpy.random.Generator`, and the results [P]. A rule that needs
more names it as further parameters: `previous`, the server's posterior before the round, and `prior`, both `Gaussian`.

The file may also hold `READS`, the names in SHARED that the rule reads (all, if it does not say), and a class
`Settings(AggregationSettings)` with settings of its own.

A rule's module is found by its name in lower case and imported only when it is used, so that a change of one rule
affects no other. This module imports none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

ARGUMENTS = ("means", "log_variances", "weights", "settings", "generator")
FURTHER = ("previous", "prior")
# Shared settings that a cell's result depends on only where its rule reads them. The bounds are the clients' as well.
SHARED = ("arithmetic",)


@dataclass(frozen=True, kw_only=True)
class AggregationSettings:
    """What every rule may read. A rule's own `Settings` add to it.

    bounds: lowest and highest log variance in use; a rule clips its input to them unless its equation says otherwise.
    arithmetic: "exact" follows the equations, "reference" the paper's program where the two differ.
    """

    bounds: tuple[float, float] = (-8.0, 8.0)
    arithmetic: Literal["exact", "reference"] = "exact"


@dataclass(frozen=True)
class Gaussian:
    """Independent Gaussians: mean [P] and log variance [P]."""

    mean: Array
    log_variance: Array


@dataclass(frozen=True)
class Rule:
    """A rule as its file describes it: `asks` are the names in FURTHER that `function` takes."""

    function: Callable[..., tuple[Array, Array]]
    reads: tuple[str, ...]
    settings: type[AggregationSettings]
    asks: tuple[str, ...]

    def __call__(
        self,
        means: Array,
        log_variances: Array,
        weights: Array,
        settings: AggregationSettings,
        generator: np.random.Generator,
        previous: Gaussian | None = None,
        prior: Gaussian | None = None,
    ) -> tuple[Array, Array]:
        """means, log_variances [K, P], weights [K] -> mean [P], log variance [P]."""
        further = {"previous": previous, "prior": prior}
        asked = {name: further[name] for name in self.asks}
        return self.function(means, log_variances, weights, settings, generator, **asked)


def is_rule_name(name: str) -> bool:
    """Whether a rule may have this name ("none" stands for no rule)."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{,99}", name) is not None and name.lower() != "none"


def names() -> list[str]:
    """The names of the rules in this folder, in alphabetical order."""
    return sorted(path.stem.upper() for path in Path(__file__).parent.glob("*.py") if is_rule_name(path.stem))


def rule_file(name: str) -> Path:
    """Where a rule of this folder lies or would lie."""
    return Path(__file__).with_name(f"{name.lower()}.py")
