"""AALV, arithmetic aggregation of log variances: the geometric mean of the variances.

    mean = sum_k beta_k mean_k            variance = exp(sum_k beta_k log variance_k)

The log variances are averaged as they are stored, without clipping.

"How to Combine Variational Bayesian Networks in Federated Learning" (arXiv 2206.10897), section 3.
"""

from __future__ import annotations

import numpy as np

from bflp.aggregators import AggregationSettings, Array

READS = ()


def aggregate(
    means: Array, log_variances: Array, weights: Array, settings: AggregationSettings, generator: np.random.Generator
) -> tuple[Array, Array]:
    """means, log_variances [K, P], weights [K] -> mean [P], log variance [P]."""
    return weights @ means, weights @ log_variances
