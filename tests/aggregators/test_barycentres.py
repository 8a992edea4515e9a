"""W2, RKL and FKL against numerical minimisation of what each says it minimises, integrated on a grid."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from bflp.aggregators import AggregationSettings
from bflp.settings.rules import load_rule

WEIGHTS, MEANS, VARIANCES = [0.1, 0.3, 0.6], [-1.0, 0.5, 3.0], [0.04, 1.0, 0.25]
CASES = [
    (WEIGHTS, MEANS, VARIANCES),
    ([0.5, 0.5], [0.0, 1.5], [0.5, 2.0]),
    ([0.25, 0.45, 0.3], [3.0, -3.0, 0.0], [2.0, 0.7, 1.1]),
    ([0.2, 0.2, 0.2, 0.4], [1.0, 1.0, 1.0, 1.0], [0.3, 0.1, 3.0, 0.3]),
]


def combine(rule, weights, means, variances):
    mean, log_variance = load_rule(rule)(
        np.array(means)[:, None],
        np.log(np.array(variances))[:, None],
        np.array(weights),
        AggregationSettings(),
        np.random.default_rng(0),
    )
    return mean[0], math.exp(log_variance[0])


X = np.linspace(-40, 40, 4_001)
# Quantile functions are compared at u = Phi(z); beyond 8, u is rounded to 1.
Z = np.linspace(-8, 8, 401)


def kl(p, q):
    """KL(p || q) = integral of p log(p / q)."""
    return np.trapezoid(p.pdf(X) * (p.logpdf(X) - q.logpdf(X)), X)


def squared_w2(p, q):
    """The integral over u in (0, 1) of (quantile of p - quantile of q)^2."""
    u = stats.norm.cdf(Z)
    return np.trapezoid((p.ppf(u) - q.ppf(u)) ** 2 * stats.norm.pdf(Z), Z)


DIVERGENCES = {"W2": squared_w2, "RKL": kl, "FKL": lambda q, client: kl(client, q)}


@pytest.mark.slow
@pytest.mark.parametrize("rule", DIVERGENCES)
@pytest.mark.parametrize(("weights", "means", "variances"), CASES)
def test_it_minimises_the_weighted_sum_of_divergences(rule, weights, means, variances):
    clients = [stats.norm(mean, math.sqrt(variance)) for mean, variance in zip(means, variances, strict=True)]

    def objective(parameters):
        q = stats.norm(parameters[0], math.exp(parameters[1] / 2))
        return sum(weight * DIVERGENCES[rule](q, client) for weight, client in zip(weights, clients, strict=True))

    # Any start but the answer will do.
    least = optimize.minimize(
        objective, [0.3, -0.2], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-13, "maxiter": 500}
    )
    assert least.success
    mean, variance = combine(rule, weights, means, variances)
    assert mean == pytest.approx(least.x[0], abs=2e-6)
    assert math.log(variance) == pytest.approx(least.x[1], abs=2e-6)


@pytest.mark.parametrize(
    ("rule", "mean", "variance"),
    [
        # precisions 25, 1, 4: 2.5 + 0.3 + 2.4 = 5.2;  (-2.5 + 0.15 + 7.2) / 5.2
        ("RKL", 4.85 / 5.2, 1 / 5.2),
        # -0.1 + 0.15 + 1.8 = 1.85;  0.454 + 0.1 * 2.85^2 + 0.3 * 1.35^2 + 0.6 * 1.15^2 = 2.6065
        ("FKL", 1.85, 2.6065),
        # deviations 0.2, 1, 0.5: 0.02 + 0.3 + 0.3 = 0.62
        ("W2", 1.85, 0.62**2),
        ("AALV", 1.85, 0.04**0.1 * 0.25**0.6),
        ("EAA", 1.85, 0.454),
        ("GAA", 1.85, 0.1804),
        ("CF", 4.85 / 5.2, 0.6 / 5.2),
    ],
)
def test_three_clients_by_hand(rule, mean, variance):
    assert combine(rule, WEIGHTS, MEANS, VARIANCES) == pytest.approx((mean, variance), rel=1e-12)


@pytest.mark.parametrize("rule", DIVERGENCES)
@pytest.mark.parametrize("clients", [1, 2, 10, 1000])
def test_clients_that_agree_are_left_alone(rule, clients):
    amounts = np.random.default_rng(clients).uniform(0.1, 10, clients)
    found = combine(rule, amounts / amounts.sum(), [0.7] * clients, [0.02] * clients)
    assert found == pytest.approx((0.7, 0.02), rel=1e-12)


def test_fkl_does_not_cancel_far_from_zero():
    """The variance is 1e-3 + 1e-6 where squares of the means are 1e12."""
    mean, variance = combine("FKL", [0.5, 0.5], [1e6 - 1e-3, 1e6 + 1e-3], [1e-3, 1e-3])
    assert (mean, variance) == pytest.approx((1e6, 1e-3 + 1e-6), rel=1e-8)
