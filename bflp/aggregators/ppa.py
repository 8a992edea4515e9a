"""PPA, pooled population aggregation: mean and variance of samples pooled from all clients.

    population = union over k of n_k samples of N(mean_k, variance_k),   n_k = N beta_k
    mean = its mean            variance = its mean squared deviation (divided by N; by N - 1 in the paper's program)

The population is never stored. For client k the mean of n_k normal samples is N(mean_k, variance_k / n_k), and,
independently, the sum of their squared deviations from it is variance_k times a chi-squared variable with n_k - 1
degrees of freedom (Cochran's theorem). Drawing these two gives the pooled mean and variance exactly.

"How to Combine Variational Bayesian Networks in Federated Learning" (arXiv 2206.10897), section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray

from bflp.aggregators import AggregationSettings, Array

READS = ("arithmetic",)


@dataclass(frozen=True, kw_only=True)
class Settings(AggregationSettings):
    """PPA's own setting."""

    population: Annotated[int, Ge(2), Lt(2**31)] = 1000
    """Size N of the population that is pooled."""


def aggregate(
    means: Array, log_variances: Array, weights: Array, settings: Settings, generator: np.random.Generator
) -> tuple[Array, Array]:
    """means, log_variances [K, P], weights [K] -> mean [P], log variance [P].

    Raises ValueError when `reference` arithmetic leaves fewer than two samples.
    """
    reference = settings.arithmetic == "reference"
    counts = (
        np.floor(settings.population * weights).astype(np.int64) if reference else shares(settings.population, weights)
    )
    total = int(counts.sum())
    if total < 2:
        raise ValueError(
            f"PPA: a population of {settings.population} leaves {total} samples for {len(weights)} clients when "
            "the counts are truncated; raise aggregators.PPA.population or set aggregation: exact"
        )
    sums, squares = np.zeros(means.shape[1]), np.zeros(means.shape[1])
    # Deviations are taken from a value near the pooled mean, since squares of large numbers would cancel badly.
    center = weights @ means
    for count, mean, log_variance in zip(counts, means, log_variances, strict=True):
        if count == 0:
            continue
        variance = np.exp(np.clip(log_variance, *settings.bounds))
        deviation = mean - center + np.sqrt(variance / count) * generator.standard_normal(len(mean))
        # Chi-squared with n - 1 degrees of freedom is twice a gamma variable of shape (n - 1) / 2; 0 for n = 1.
        scatter = variance * (2 * generator.standard_gamma((count - 1) / 2, len(mean)))
        sums += count * deviation
        squares += scatter + count * deviation**2
    shift = sums / total
    return center + shift, np.log((squares - total * shift**2) / (total - 1 if reference else total))


def shares(population: int, weights: Array) -> NDArray[np.int64]:
    """Whole numbers n_k near population * weights [K] that sum to it (largest remainders)."""
    ideal = population * weights
    counts = np.floor(ideal).astype(np.int64)
    missing = population - int(counts.sum())
    counts[np.argsort(-(ideal - counts), kind="stable")[:missing]] += 1
    return counts
