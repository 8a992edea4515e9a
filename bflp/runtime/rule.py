"""A cell's aggregation rule as the server calls it, with its mistakes told in one line that names its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bflp.aggregators import Array, Gaussian, rule_file
from bflp.engine.settings import CellSettings
from bflp.errors import ConfigError
from bflp.grid.cell import NO_AGGREGATOR
from bflp.runtime.errors import HopelessError
from bflp.runtime.inputs import Assignment
from bflp.settings.own_files import described
from bflp.settings.rules import load_rule

# Weights in the trial before the training: few, since only shapes and finiteness are looked at.
TRIAL_SIZE = 7


class CheckedRule:
    """The cell's rule, of the package or of a Python file outside it. Raises HopelessError if it cannot be loaded."""

    def __init__(self, settings: CellSettings, file: Path | None) -> None:
        self.title = f"the aggregator {settings.aggregator}"
        self.file = file or rule_file(settings.aggregator)
        try:
            self.rule = load_rule(settings.aggregator, file)
        except ConfigError as error:
            raise HopelessError(f"{self.title} cannot be loaded: {error}") from None
        bounds = settings.posterior.bounds if settings.posterior else (-8.0, 8.0)
        self.settings = self.rule.settings(bounds=bounds, arithmetic=settings.aggregation, **settings.rule)
        posterior = settings.posterior
        self.prior = (posterior.prior_mean, posterior.prior_standard_deviation) if posterior else (0.0, 1.0)

    def __call__(
        self,
        means: Array,
        log_variances: Array,
        weights: Array,
        generator: np.random.Generator,
        previous: Gaussian,
        prior: Gaussian,
        when: str,
    ) -> tuple[Array, Array]:
        """means, log_variances [K, P], weights [K] -> mean [P], log variance [P].

        Raises HopelessError, saying when, if the rule raises or returns anything else.
        """
        try:
            answer: Any = self.rule(means, log_variances, weights, self.settings, generator, previous, prior)
            shape = means.shape[1:]
            if not isinstance(answer, tuple) or len(answer) != 2 or any(np.shape(part) != shape for part in answer):
                raise TypeError(f"it must return two arrays of shape {shape}, not {_shapes(answer)}")
            return np.asarray(answer[0], dtype=np.float64), np.asarray(answer[1], dtype=np.float64)
        except Exception as error:
            raise HopelessError(f"{self.title} failed {when}: {described(self.file, error)}") from None

    def try_out(self, clients: int, by_data: bool) -> None:
        """Combine a few made-up weights of `clients` clients, and of one, under the prior. Raises HopelessError."""
        mean, deviation = self.prior
        for count in sorted({1, clients}):
            generator = np.random.default_rng(0)
            means = generator.normal(0, 0.1, (count, TRIAL_SIZE))
            log_variances = generator.uniform(-9, -7, (count, TRIAL_SIZE))
            weights = np.arange(1.0, count + 1) if by_data else np.ones(count)
            previous = Gaussian(generator.normal(0, 0.1, TRIAL_SIZE), generator.uniform(-9, -7, TRIAL_SIZE))
            prior = Gaussian(np.full(TRIAL_SIZE, mean), np.full(TRIAL_SIZE, 2 * np.log(deviation)))
            when = f"when it was tried out with {count} client{'s' if count > 1 else ''}"
            answer = self(means, log_variances, weights / weights.sum(), generator, previous, prior, when)
            if not all(np.isfinite(part).all() for part in answer):
                raise HopelessError(f"{self.title} ({self.file}) makes entries that are not finite from finite ones")


def checked_rule(assignment: Assignment) -> CheckedRule | None:
    """The rule of a cell; None where the algorithm or the lack of a posterior leaves none. Raises HopelessError."""
    if assignment.job.cell.aggregator == NO_AGGREGATOR:
        return None
    file = assignment.job.files.get("aggregator")
    return CheckedRule(assignment.settings(), Path(file) if file else None)


def _shapes(answer: Any) -> str:
    if isinstance(answer, tuple):
        return f"{len(answer)} of shapes {', '.join(str(np.shape(part)) for part in answer)}"
    return f"a {type(answer).__name__}"
