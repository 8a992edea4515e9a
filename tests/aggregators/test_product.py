"""PRODUCT against Bayes' rule on a grid, and against a regression whose posterior is known."""

import math

import numpy as np
import pytest
from scipy import stats

from bflp.aggregators import AggregationSettings, Gaussian
from bflp.settings.rules import load_rule


def combine(means, precisions, prior_mean=0.0, prior_precision=1.0, bounds=(-8.0, 8.0)):
    """[K, P] means and precisions -> mean [P], precision [P]."""
    means, precisions = np.array(means, dtype=float), np.array(precisions, dtype=float)
    weights = means.shape[1]
    prior = Gaussian(np.full(weights, prior_mean), np.full(weights, -math.log(prior_precision)))
    mean, log_variance = load_rule("PRODUCT")(
        means,
        -np.log(precisions),
        np.full(len(means), 1 / len(means)),
        AggregationSettings(bounds=bounds),
        np.random.default_rng(0),
        prior=prior,
    )
    return mean, np.exp(-log_variance)


@pytest.mark.parametrize(
    ("prior", "means", "precisions"),
    [
        ((0.0, 1.0), [-1.0, 0.5, 3.0], [25.0, 1.0, 4.0]),
        ((0.5, 4.0), [-1.0, 0.5], [5.0, 40.0]),
        ((-2.0, 0.1), [1.0, 1.5, -0.5, 0.0], [0.3, 1.0, 0.2, 7.0]),
        ((1.0, 2.0), [0.25], [9.0]),
    ],
)
def test_it_is_the_normalised_product_of_densities(prior, means, precisions):
    """Mean and precision of prior * prod_k (q_k / prior), integrated on a grid; no formula of a product is used."""
    x = np.linspace(-12, 12, 240_001)
    log_prior = stats.norm(prior[0], prior[1] ** -0.5).logpdf(x)
    log_product = log_prior.copy()
    for mean, precision in zip(means, precisions, strict=True):
        log_product += stats.norm(mean, precision**-0.5).logpdf(x) - log_prior
    product = np.exp(log_product - log_product.max())
    product /= np.trapezoid(product, x)
    mean = np.trapezoid(x * product, x)
    variance = np.trapezoid((x - mean) ** 2 * product, x)
    found_mean, found_precision = combine([[m] for m in means], [[p] for p in precisions], *prior)
    assert found_mean[0] == pytest.approx(mean, abs=1e-9)
    assert 1 / found_precision[0] == pytest.approx(variance, rel=1e-8)


def test_three_clients_by_hand():
    # 1 + 24 + 0 + 3 = 28;  (-25 + 0.5 + 12) / 28
    mean, precision = combine([[-1], [0.5], [3]], [[25], [1], [4]])
    assert (mean[0], precision[0]) == pytest.approx((-12.5 / 28, 28), rel=1e-12)


def test_a_regression_split_over_clients_is_that_of_all_data():
    """Bayesian linear regression with orthogonal features: each client's posterior, then that of all rows at once."""
    generator = np.random.default_rng(1)
    truth, noise, prior_precision = np.array([0.4, -1.2]), 0.5, 3.0
    rows, targets, means, precisions = [], [], [], []
    for pairs in (2, 5, 20):
        # Rows (a, b) and (a, -b): their Gram matrix is diagonal.
        half = generator.normal(0, 1, (pairs, 2))
        features = np.concatenate([half, half * [1, -1]])
        target = features @ truth + generator.normal(0, noise, len(features))
        gram = features.T @ features / noise**2 + prior_precision * np.eye(2)
        means.append(np.linalg.solve(gram, features.T @ target / noise**2))
        precisions.append(np.diag(gram))
        rows.append(features)
        targets.append(target)
    everything, target = np.concatenate(rows), np.concatenate(targets)
    gram = everything.T @ everything / noise**2 + prior_precision * np.eye(2)
    mean, precision = combine(means, precisions, 0.0, prior_precision)
    np.testing.assert_allclose(precision, np.diag(gram), rtol=1e-12)
    np.testing.assert_allclose(mean, np.linalg.solve(gram, everything.T @ target / noise**2), rtol=1e-12)


def test_two_weights_and_three_clients():
    """Likelihoods exp(-a (w - c)^2 / 2) under N(0, 1): each posterior has precision 1 + a and mean a c / (1 + a)."""
    a = np.array([[4, 10], [30, 1], [8, 25]])
    c = np.array([[-1, 0.2], [0.5, -2], [3, 1]])
    mean, precision = combine(a * c / (1 + a), 1 + a)
    # 1 + 4 + 30 + 8, 1 + 10 + 1 + 25;  (-4 + 15 + 24) / 43, (2 - 2 + 25) / 37
    np.testing.assert_allclose(precision, [43, 37], rtol=1e-12)
    np.testing.assert_allclose(mean, [35 / 43, 25 / 37], rtol=1e-12)


def test_a_client_less_precise_than_the_prior_adds_nothing():
    # Per weight: in the first the second client has precision 1 under a prior of 2 and counts for nothing.
    mean, precision = combine([[1, 1], [9, -1]], [[6, 6], [1, 5]], 0.0, 2.0)
    # 2 + 4 = 6, mean 1;  2 + 4 + 3 = 9, mean (6 - 5) / 9
    np.testing.assert_allclose(precision, [6, 9], rtol=1e-12)
    np.testing.assert_allclose(mean, [1, 1 / 9], rtol=1e-12)
    # Of clients that are all less precise the prior remains.
    mean, precision = combine([[5], [9]], [[1], [0.5]], 0.25, 2.0)
    assert (mean[0], precision[0]) == pytest.approx((0.25, 2), rel=1e-12)


def test_a_prior_narrower_than_the_bounds_is_refused():
    with pytest.raises(ValueError, match="the prior is narrower"):
        combine([[0.0]], [[100.0]], prior_precision=math.exp(5.1), bounds=(-5.0, 5.0))


def test_a_prior_as_narrow_as_the_bounds_is_allowed():
    # Of one client the product is its posterior.
    mean, precision = combine([[0.3]], [[math.exp(5)]], prior_precision=math.exp(5), bounds=(-5.0, 5.0))
    assert (mean[0], precision[0]) == pytest.approx((0.3, math.exp(5)), rel=1e-12)


def test_log_variances_are_clipped_to_the_bounds():
    _, precision = combine([[0.0], [0.0]], [[math.exp(9)], [math.exp(3)]], bounds=(-5.0, 5.0))
    assert precision[0] == pytest.approx(math.exp(5) + math.exp(3) - 1, rel=1e-12)


def test_the_variance_shrinks_where_clients_agree():
    """Ten clients that say the same have ten times the evidence; so iterating the rule would count it again."""
    _, precision = combine([[0.3]] * 10, [[100.0]] * 10)
    assert precision[0] == pytest.approx(991, rel=1e-12)
