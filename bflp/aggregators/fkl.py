"""FKL, the forward-KL barycentre: mean and variance of the mixture of the clients' posteriors.

    mean = sum_k beta_k mean_k            variance = sum_k beta_k (variance_k + (mean_k - mean)^2)

It is the Gaussian q that minimises sum_k beta_k KL(q_k || q). PPA tends to it as its population grows.

Bishop (2006), "Pattern Recognition and Machine Learning", section 10.7: moment matching.
"""

from __future__ import annotations

import numpy as np

from bflp.aggregators import AggregationSettings, Array

READS = ()


def aggregate(
    means: Array, log_variances: Array, weights: Array, settings: AggregationSettings, generator: np.random.Generator
) -> tuple[Array, Array]:
    """means, log_variances [K, P], weights [K] -> mean [P], log variance [P]."""
    mean = weights @ means
    # Deviations, since the difference of a mean of squares and a squared mean would cancel badly.
    variances = np.exp(np.clip(log_variances, *settings.bounds)) + (means - mean) ** 2
    return mean, np.log(weights @ variances)
