"""RKL, the reverse-KL barycentre: precisions are averaged, and means weighted by them.

With the precisions lambda_k = 1 / variance_k,

    mean = sum_k beta_k lambda_k mean_k / sum_k beta_k lambda_k        variance = 1 / sum_k beta_k lambda_k

It is the Gaussian q that minimises sum_k beta_k KL(q || q_k): the normalised product of the densities q_k^beta_k. CF
has the same mean, and max_k beta_k times the variance.

"Information-Geometric Barycenters for Bayesian Federated Learning" (arXiv 2412.11646).
"""

from __future__ import annotations

import numpy as np

from bflp.aggregators import AggregationSettings, Array

READS = ()


def aggregate(
    means: Array, log_variances: Array, weights: Array, settings: AggregationSettings, generator: np.random.Generator
) -> tuple[Array, Array]:
    """means, log_variances [K, P], weights [K] -> mean [P], log variance [P]."""
    # A sum of precisions stays in range for any number of clients; a product of variances would not.
    weighted_precisions = weights[:, None] * np.exp(-np.clip(log_variances, *settings.bounds))
    total = weighted_precisions.sum(axis=0)
    return (weighted_precisions * means).sum(axis=0) / total, -np.log(total)
