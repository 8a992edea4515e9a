"""CF, conflation: the normalised product of the densities f_k^(beta_k / max beta).

With the precisions lambda_k = 1 / variance_k,

    mean = sum_k beta_k lambda_k mean_k / sum_k beta_k lambda_k        variance = max_k beta_k / sum_k beta_k lambda_k

"How to Combine Variational Bayesian Networks in Federated Learning" (arXiv 2206.10897), section 3; Hill (2011),
"Conflations of probability distributions".
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
    mean = (weighted_precisions * means).sum(axis=0) / total
    return mean, np.log(weights.max()) - np.log(total)
