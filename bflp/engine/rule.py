"""A cell's aggregation rule, with its mistakes told in one line that names its file."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np

from bflp import aggregators
from bflp.aggregators import AggregationSettings, Array
from bflp.errors import UserError

# Weights in the trial before the training: few, since only shapes and finiteness are looked at.
TRIAL_SIZE = 7


class CheckedRule:
    """The rule `name` of the package, or of a Python file outside it. Raises UserError when it can not be loaded."""

    def __init__(self, name: str, file: Path | None) -> None:
        self.title = f"the aggregator {name}"
        self.file = file or Path(aggregators.__file__).with_name(f"{name.lower()}.py")
        try:
            self.function = aggregators.load(name, file)
        except Exception as error:
            raise self._error("can not be loaded", error) from None

    def __call__(
        self,
        when: str,
        means: Array,
        log_variances: Array,
        weights: Array,
        settings: AggregationSettings,
        generator: np.random.Generator,
    ) -> tuple[Array, Array]:
        """means, log_variances [K, P], weights [K] -> mean [P], log variance [P]. Raises UserError, saying when."""
        try:
            answer: Any = self.function(means, log_variances, weights, settings, generator)
            shape = means.shape[1:]
            if not isinstance(answer, tuple) or len(answer) != 2 or any(np.shape(part) != shape for part in answer):
                raise TypeError(f"it must return two arrays of shape {shape}, not {_described(answer)}")
            return np.asarray(answer[0], dtype=np.float64), np.asarray(answer[1], dtype=np.float64)
        except Exception as error:
            raise self._error(f"failed {when}", error) from None

    def try_out(self, clients: int, by_data: bool, settings: AggregationSettings) -> None:
        """Combine a few made-up weights of `clients` clients. Raises UserError, before hours of training do."""
        generator = np.random.default_rng(0)
        means = generator.normal(0, 0.1, (clients, TRIAL_SIZE))
        log_variances = generator.uniform(-9, -7, (clients, TRIAL_SIZE))
        weights = np.arange(1.0, clients + 1) if by_data else np.ones(clients)
        answer = self("when it was tried out", means, log_variances, weights / weights.sum(), settings, generator)
        if not all(np.isfinite(part).all() for part in answer):
            raise UserError(f"{self.title} ({self.file}) makes entries that are not finite of finite ones")

    def _error(self, what: str, error: Exception) -> UserError:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).absolute() == self.file.absolute()]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        place = f"{self.file}, line {lines[-1]}" if lines else str(self.file)
        message = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
        return UserError(f"{self.title} {what}: {place}: {type(error).__name__}: {message}")


def _described(answer: Any) -> str:
    if isinstance(answer, tuple):
        return f"{len(answer)} of shapes {', '.join(str(np.shape(part)) for part in answer)}"
    return f"a {type(answer).__name__}"
