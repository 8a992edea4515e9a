"""The server's part of a round: which clients train, how much each counts, and how their models become one."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bflp.aggregators import Array, Gaussian
from bflp.engine.errors import NotFiniteError
from bflp.engine.settings import CellSettings
from bflp.networks.layout import Layout
from bflp.rng import numpy_generator


def select_clients(settings: CellSettings, round_: int, sizes: NDArray[np.int64]) -> list[int]:
    """The clients of a round, drawn without replacement from those with data, in ascending order; at least one."""
    generator = numpy_generator(settings.seed, "client selection", round_)
    with_data = np.flatnonzero(sizes)
    active = max(1, round(settings.fraction * len(with_data)))
    return sorted(with_data[generator.choice(len(with_data), size=active, replace=False)].tolist())


def aggregation_weights(sizes: NDArray[np.int64], by_data: bool) -> NDArray[np.float64]:
    """beta [K], summing to 1 over the selected clients: by local data size, or equal (1 / K)."""
    amounts = sizes.astype(np.float64) if by_data else np.ones(len(sizes))
    weights: NDArray[np.float64] = amounts / amounts.sum()
    return weights


class RuleCall(Protocol):
    """A cell's rule with its settings. when: for its errors."""

    def __call__(
        self,
        means: Array,
        log_variances: Array,
        weights: Array,
        generator: np.random.Generator,
        previous: Gaussian,
        prior: Gaussian,
        when: str,
    ) -> tuple[Array, Array]: ...


class Aggregator:
    """Combines the clients' flat vectors: deterministic tensors always average, posteriors follow the cell's rule."""

    def __init__(self, settings: CellSettings, layout: Layout, rule: RuleCall | None) -> None:
        self.settings, self.layout, self.rule = settings, layout, rule
        self.by_data = settings.weights == "data"
        posterior = settings.posterior
        self.projection = posterior.bounds if posterior and posterior.enforce == "project" else None
        weights = layout.means.stop - layout.means.start
        prior = (posterior.prior_mean, 2 * np.log(posterior.prior_standard_deviation)) if posterior else (0.0, 0.0)
        self.prior = Gaussian(*(np.full(weights, value) for value in prior))

    def combine(self, vectors: NDArray[np.float32], sizes: NDArray[np.int64], round_: int, previous: Tensor) -> Tensor:
        """vectors [K, D] and data sizes [K] of the round's clients, in ascending order of client -> model [D].

        previous [D]: the server's model before the round. Everything is computed in float64 and rounded once. Raises
        NotFiniteError when an entry of the model is not finite, and what the rule raises.
        """
        weights = aggregation_weights(sizes, self.by_data)
        layout = self.layout
        # An entry that nothing fills is found below, as one that is not finite.
        model = np.full(layout.size, np.nan, dtype=vectors.dtype)
        model[layout.deterministic] = weights @ vectors[:, layout.deterministic].astype(np.float64)
        if self.rule is not None:
            before = previous.numpy().astype(np.float64)
            mean, log_variance = self.rule(
                vectors[:, layout.means].astype(np.float64),
                vectors[:, layout.log_variances].astype(np.float64),
                weights,
                numpy_generator(self.settings.seed, "aggregation", round_),
                Gaussian(before[layout.means], before[layout.log_variances]),
                self.prior,
                f"in round {round_}",
            )
            with np.errstate(over="ignore", invalid="ignore"):
                model[layout.means] = mean
                model[layout.log_variances] = (
                    np.clip(log_variance, *self.projection) if self.projection else log_variance
                )
        if not np.isfinite(model).all():
            name = "averaging" if self.rule is None else f"the aggregator {self.settings.aggregator}"
            raise NotFiniteError(f"{name} made entries that are not finite from finite ones")
        return torch.from_numpy(model)
