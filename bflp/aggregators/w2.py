"""W2, the Wasserstein-2 barycentre: means and standard deviations are averaged.

    mean = sum_k beta_k mean_k            standard deviation = sum_k beta_k standard deviation_k

It is the Gaussian q that minimises sum_k beta_k W2(q, q_k)^2, where for one weight
W2(q, q_k)^2 = (mean - mean_k)^2 + (standard deviation - standard deviation_k)^2.

Agueh and Carlier (2011), "Barycenters in the Wasserstein space", section 6; for federated learning:
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
    deviations = np.exp(0.5 * np.clip(log_variances, *settings.bounds))
    return weights @ means, 2 * np.log(weights @ deviations)
