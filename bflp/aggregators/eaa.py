"""EAA, empirical arithmetic aggregation: means and variances are averaged.

    mean = sum_k beta_k mean_k            variance = sum_k beta_k variance_k

"How to Combine Variational Bayesian Networks in Federated Learning" (arXiv 2206.10897), section 3.
"""

from __future__ import annotations

import numpy as np

from bflp.aggregators import AggregationSettings, Array
from bflp.aggregators._floored_sum import floored_running_sum

READS = ("arithmetic",)


def aggregate(
    means: Array, log_variances: Array, weights: Array, settings: AggregationSettings, generator: np.random.Generator
) -> tuple[Array, Array]:
    """means, log_variances [K, P], weights [K] -> mean [P], log variance [P]."""
    mean = weights @ means
    if settings.arithmetic == "reference":
        return mean, floored_running_sum(log_variances, weights, settings.bounds)
    return mean, np.log(weights @ np.exp(np.clip(log_variances, *settings.bounds)))
