"""PPA against populations that are really drawn and pooled."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bflp.aggregators import ppa

MEANS = np.array([0.0, 1.5, -0.5, 4.0])
VARIANCES = np.array([0.5, 1.0, 2.0, 0.1])
# 4.4 + 7.6 + 6.8 + 1.2 of a population of 20: whole numbers 4 + 8 + 7 + 1, truncated 4 + 7 + 6 + 1.
WEIGHTS = np.array([0.22, 0.38, 0.34, 0.06])
COUNTS = {"exact": [4, 8, 7, 1], "reference": [4, 7, 6, 1]}
DRAWS = 20_000


def pooled(arithmetic, draws=DRAWS, population=20, weights=WEIGHTS, seed=1):
    """`draws` independent results of the rule: mean [draws], variance [draws]."""
    shape = (len(weights), draws)
    mean, log_variance = ppa.aggregate(
        np.broadcast_to(MEANS[: len(weights), None], shape),
        np.broadcast_to(np.log(VARIANCES[: len(weights), None]), shape),
        weights,
        ppa.Settings(arithmetic=arithmetic, population=population),
        np.random.default_rng(seed),
    )
    return mean, np.exp(log_variance)


def sampled(counts, divisor_less, seed=2):
    """The same from populations that are stored sample by sample."""
    generator = np.random.default_rng(seed)
    population = np.concatenate(
        [
            generator.normal(mean, math.sqrt(variance), (count, DRAWS))
            for mean, variance, count in zip(MEANS, VARIANCES, counts, strict=True)
        ]
    )
    return population.mean(axis=0), population.var(axis=0, ddof=divisor_less)


@pytest.mark.parametrize(("arithmetic", "divisor_less"), [("exact", 0), ("reference", 1)])
def test_distribution_is_that_of_a_sampled_population(arithmetic, divisor_less):
    mean, variance = pooled(arithmetic)
    other_mean, other_variance = sampled(COUNTS[arithmetic], divisor_less)
    # Mean and variance depend on each other here, so their sum and difference are compared as well.
    for name, one, other in (
        ("mean", mean, other_mean),
        ("variance", variance, other_variance),
        ("sum", mean + variance, other_mean + other_variance),
        ("difference", variance - 2 * mean, other_variance - 2 * other_mean),
    ):
        assert stats.ks_2samp(one, other).pvalue > 0.01, name


@pytest.mark.parametrize(("arithmetic", "divisor_less"), [("exact", 0), ("reference", 1)])
def test_expected_mean_and_variance(arithmetic, divisor_less):
    """E mean = sum n mu / N;  E variance = (sum n (sigma2 + mu^2) - N E mean^2) / (N or N - 1)."""
    counts = np.array(COUNTS[arithmetic])
    total = counts.sum()
    expected_mean = counts @ MEANS / total
    mean_square = counts @ VARIANCES / total**2 + expected_mean**2
    expected_variance = (counts @ (VARIANCES + MEANS**2) - total * mean_square) / (total - divisor_less)
    for found, expected in zip(pooled(arithmetic), (expected_mean, expected_variance), strict=True):
        standard_error = found.std() / math.sqrt(DRAWS)
        assert abs(found.mean() - expected) < 4 * standard_error
        # The other arithmetic must be told apart by this test.
        assert standard_error < 0.01


@pytest.mark.parametrize("arithmetic", ["exact", "reference"])
def test_large_population_tends_to_the_moment_matched_mixture(arithmetic):
    mean, variance = pooled(arithmetic, draws=100, population=10**9)
    mixture_mean = WEIGHTS @ MEANS
    np.testing.assert_allclose(mean, mixture_mean, atol=5e-4)
    np.testing.assert_allclose(variance, WEIGHTS @ (VARIANCES + (MEANS - mixture_mean) ** 2), rtol=1e-3)


def test_means_far_from_zero_do_not_cancel():
    """The pooled variance is about 1e-3 where squares of the means are 1e12."""
    shape = (3, 500)
    mean, log_variance = ppa.aggregate(
        np.full(shape, 1e6),
        np.full(shape, math.log(1e-3)),
        np.full(3, 1 / 3),
        ppa.Settings(population=3000),
        np.random.default_rng(0),
    )
    np.testing.assert_allclose(mean, 1e6, rtol=0, atol=0.01)
    np.testing.assert_allclose(np.exp(log_variance), 1e-3, rtol=0.15)


def test_log_variances_are_clipped():
    shape = (2, 200)
    _, log_variance = ppa.aggregate(
        np.zeros(shape),
        np.full(shape, -20.0),
        np.full(2, 0.5),
        ppa.Settings(population=10**8),
        np.random.default_rng(0),
    )
    np.testing.assert_allclose(log_variance, -8, atol=2e-3)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40),
    st.integers(2, 100_000),
)
def test_shares_sum_to_the_population_and_lie_next_to_the_ideal(amounts, population):
    weights = np.array(amounts) / np.sum(amounts)
    counts = ppa.shares(population, weights)
    assert counts.sum() == population
    assert (counts >= 0).all()
    assert (np.abs(counts - population * weights) < 1 + 1e-6).all()


@pytest.mark.parametrize(
    ("population", "weights", "counts"),
    [
        (10, [0.25, 0.75], [3, 7]),  # 2.5 and 7.5: of equal remainders the first
        (10, [0.29, 0.33, 0.38], [3, 3, 4]),  # 2.9, 3.3, 3.8
        (1000, [1 / 3, 1 / 3, 1 / 3], [334, 333, 333]),
        (2, [0.1, 0.1, 0.8], [0, 0, 2]),  # 0.2, 0.2, 1.6
    ],
)
def test_shares_worked_out(population, weights, counts):
    assert ppa.shares(population, np.array(weights)).tolist() == counts


def test_population_that_truncation_leaves_empty():
    weights = np.full(1000, 1 / 1000)
    arguments = (np.zeros((1000, 2)), np.zeros((1000, 2)), weights)
    settings = ppa.Settings(arithmetic="reference", population=900)
    with pytest.raises(
        ValueError, match=r"population of 900 leaves 0 samples for 1000 clients.*aggregators\.PPA\.population"
    ):
        ppa.aggregate(*arguments, settings, np.random.default_rng(0))
    # By the equation the same population is enough.
    mean, log_variance = ppa.aggregate(*arguments, ppa.Settings(population=900), np.random.default_rng(0))
    assert np.isfinite(mean).all() and np.isfinite(log_variance).all()


def test_same_generator_same_result_and_other_generator_another():
    one, again, other = pooled("exact", 5), pooled("exact", 5), pooled("exact", 5, seed=9)
    np.testing.assert_array_equal(one, again)
    assert (np.array(one) != np.array(other)).all()
