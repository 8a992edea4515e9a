"""The server's part of a round: which clients train, and how their models become one.

Sections 2 and 3 of "How to Combine Variational Bayesian Networks in Federated Learning" (arXiv 2206.10897).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bflp.aggregators import AggregationSettings
from bflp.engine.client import NotFiniteError
from bflp.engine.rule import CheckedRule
from bflp.grid.job import Job
from bflp.networks.layout import Layout
from bflp.rng import numpy_generator


def select_clients(seed: int, round_: int, clients: int, fraction: float) -> list[int]:
    """The clients of a round, drawn without replacement, in ascending order; at least one."""
    generator = numpy_generator(seed, "client selection", round_)
    return sorted(generator.choice(clients, size=active(clients, fraction), replace=False).tolist())


def active(clients: int, fraction: float) -> int:
    """How many clients train in a round."""
    return max(1, round(fraction * clients))


def aggregation_weights(sizes: NDArray[np.int64], by_data: bool) -> NDArray[np.float64]:
    """beta [K], summing to 1 over the selected clients: by local data size, or equal (1 / K)."""
    amounts = sizes.astype(np.float64) if by_data else np.ones(len(sizes))
    weights: NDArray[np.float64] = amounts / amounts.sum()
    return weights


class Aggregator:
    """Combines the clients' flat vectors: deterministic tensors always average, posteriors follow the cell's rule."""

    def __init__(self, job: Job, layout: Layout) -> None:
        self.layout = layout
        self.seed = job.seed
        self.by_data = job.cell["model"] in ("FEDAVG", "FVBWA")
        self.rule: CheckedRule | None = None
        self.name = "averaging"
        self.projection: tuple[float, float] | None = None
        if job.variational:
            posterior: Mapping[str, Any] = job.settings["posterior"]
            bounds = tuple(posterior["log_variance"]["bounds"])
            file = Path(job.aggregator_file) if job.aggregator_file else None
            self.rule = CheckedRule(job.cell["aggregator"], file)
            self.name = self.rule.title
            self.settings = AggregationSettings(
                bounds=bounds,
                arithmetic=job.settings.get("aggregation", "exact"),
                population=posterior.get("ppa_population", 1000),
            )
            if posterior["log_variance"]["enforce"] == "project":
                self.projection = bounds

    def try_out(self, clients: int, fraction: float) -> None:
        """Have the rule combine a few made-up weights of a round's clients. Raises UserError for a rule at fault."""
        if self.rule is not None:
            self.rule.try_out(active(clients, fraction), self.by_data, self.settings)

    def combine(self, vectors: NDArray[np.float32], sizes: NDArray[np.int64], round_: int) -> Tensor:
        """vectors [K, D] and data sizes [K] of the round's clients, in ascending order of client -> model [D].

        Everything is computed in float64 and rounded once. Raises NotFiniteError when an entry of the model is not
        finite, and UserError when the rule raises or returns arrays of another shape.
        """
        weights = aggregation_weights(sizes, self.by_data)
        model = np.empty(self.layout.size, dtype=np.float32)
        model[self.layout.deterministic] = weights @ vectors[:, self.layout.deterministic].astype(np.float64)
        if self.rule is not None:
            means = vectors[:, self.layout.means].astype(np.float64)
            log_variances = vectors[:, self.layout.log_variances].astype(np.float64)
            generator = numpy_generator(self.seed, "aggregation", round_)
            mean, log_variance = self.rule(
                f"in round {round_}", means, log_variances, weights, self.settings, generator
            )
            with np.errstate(over="ignore", invalid="ignore"):
                model[self.layout.means] = mean
                model[self.layout.log_variances] = (
                    np.clip(log_variance, *self.projection) if self.projection else log_variance
                )
        if not np.isfinite(model).all():
            raise NotFiniteError(f"{self.name} made entries that are not finite of finite ones")
        return torch.from_numpy(model)
