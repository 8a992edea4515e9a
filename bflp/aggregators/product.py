"""PRODUCT, Bayes' rule for all clients' data: the product of the posteriors, with the prior counted once.

A client's posterior q_k is the prior times the likelihood of its data, normalised. So that of all data is

    q  ~  prior * product_k (q_k / prior)

With the precisions lambda_k = 1 / variance_k, and mean_0 and lambda_0 of the prior,

    lambda = lambda_0 + sum_k (lambda_k - lambda_0)
    mean = (lambda_0 mean_0 + sum_k (lambda_k mean_k - lambda_0 mean_0)) / lambda        variance = 1 / lambda

This is the posterior of all data, so it minimises KL(q || that), if each q_k is exact under the full prior and all
clients take part. Weights beta_k are not used: more data show in a higher precision.

Guard: where a client is less precise than the prior, which no Gaussian likelihood does, it adds nothing to either
sum; so lambda >= lambda_0. A prior narrower than variances may be would leave nothing but itself, and is refused.

Meant for one round. Variances are learnt slowly, so a client that starts from the product ends with about its
precision. The next product then counts K times what the rounds before had learnt: iterating multiplies the precision
by about K a round. Partitioned variational inference (arXiv 2202.12275) may be iterated: its clients send differences.

Tresp (2000), "A Bayesian Committee Machine", Neural Computation 12.
"""

from __future__ import annotations

import numpy as np

from bflp.aggregators import AggregationSettings, Array, Gaussian

READS = ()


def aggregate(
    means: Array,
    log_variances: Array,
    weights: Array,
    settings: AggregationSettings,
    generator: np.random.Generator,
    prior: Gaussian,
) -> tuple[Array, Array]:
    """means, log_variances [K, P], prior of [P] -> mean [P], log variance [P]. Raises ValueError."""
    if prior.log_variance.min() < settings.bounds[0]:
        raise ValueError("the prior is narrower than posterior.log_variance.bounds let any client be")
    precisions, prior_precision = np.exp(-np.clip(log_variances, *settings.bounds)), np.exp(-prior.log_variance)
    kept = precisions >= prior_precision
    precision = prior_precision + np.where(kept, precisions - prior_precision, 0).sum(axis=0)
    # The same mean as a shift from the prior's, without large sums that nearly cancel.
    shift = np.where(kept, precisions * (means - prior.mean), 0).sum(axis=0) / precision
    return prior.mean + shift, -np.log(precision)
