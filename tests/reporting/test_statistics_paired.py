"""Paired differences: against scipy's t tests, numbers of other packages, and simulated grids of known effects."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bflp.reporting.statistics.paired import claims, holm, improvement, mean_difference

NAN = np.nan
# Accuracy of two rows in 12 blocks; the values of other packages below are of these.
ONE = [80.07, 82.12, 77.05, 72.55, 75.78, 72.60, 79.75, 90.79, 76.11, 75.44, 84.00, 83.54]
OTHER = [79.75, 81.55, 78.27, 73.15, 76.18, 72.02, 80.83, 90.64, 76.71, 76.20, 83.51, 82.36]


def test_by_hand():
    # Means 2 and 5; variances of the means 1 / 3 and 4 / 3, with 2 degrees of freedom each.
    estimate = mean_difference([[1.0, 2.0, 3.0], [3.0, 5.0, 7.0]])
    assert estimate.difference == 3.5 and estimate.pairs == 6
    assert estimate.error == pytest.approx(np.sqrt(5 / 3) / 2)
    assert estimate.df == pytest.approx((5 / 3) ** 2 / ((1 / 9 + 16 / 9) / 2))


def test_one_block_is_the_paired_t_test():
    differences = np.subtract(ONE, OTHER)
    estimate, expected = mean_difference([differences]), stats.ttest_rel(ONE, OTHER)
    assert estimate.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (estimate.low, estimate.high) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_two_blocks_are_welchs_t_test():
    one, two = np.array([1.3, 0.2, 2.2, 1.9, -0.4]), np.array([5.1, -8.0, 3.3, 0.0])
    estimate = mean_difference([one, [*two, NAN]])
    expected = stats.ttest_ind(one, -two, equal_var=False)
    assert estimate.p == pytest.approx(expected.pvalue) and estimate.df == pytest.approx(expected.df)
    interval = expected.confidence_interval(0.95)
    assert (2 * estimate.low, 2 * estimate.high) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_equivalence():
    # statsmodels 0.15.0, weightstats.ttost_paired(one, other, -0.5, 0.5)
    assert mean_difference([np.subtract(ONE, OTHER)]).p_equivalent(0.5) == pytest.approx(0.05345179760452701)


def test_blocks_of_one_pair_do_not_count_and_few_pairs_give_no_interval():
    both = mean_difference([[1.0, 2.0, 4.0], [9.0, NAN, NAN]])
    alone = mean_difference([[1.0, 2.0, 4.0]])
    assert (both.difference, both.low, both.pairs) == (alone.difference, alone.low, 3)
    for few in ([[1.0, 2.0, NAN]], [[1.0, NAN], [2.0, NAN], [3.0, NAN]], [[2.0, 2.0, 2.0]], [[0.1, 0.1, 0.1]]):
        estimate = mean_difference(few)
        assert estimate.difference == pytest.approx(np.nanmean(few))
        assert np.isnan([estimate.low, estimate.high, estimate.p, estimate.p_equivalent(1.0)]).all()
    assert np.isnan(mean_difference([[NAN, NAN]]).difference)


def test_holm():
    # statsmodels 0.15.0, multipletests(p, method="holm")
    adjusted = holm([0.01, 0.04, NAN, 0.03, 0.005, 0.2])
    assert adjusted[[0, 1, 3, 4, 5]] == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.2])
    assert np.isnan(adjusted[2])
    assert holm([0.9, 0.6, 0.7]).tolist() == [1.0, 1.0, 1.0]


def test_improvement():
    # statsmodels 0.15.0, proportion_confint(51, 60, method="wilson") and (12, 12)
    most = np.where(np.arange(60) < 51, -0.5, 0.5).reshape(12, 5)
    assert improvement(most, False) == pytest.approx((0.85, 0.7388541093022145, 0.9190255941983225))
    assert improvement(np.ones((12, 1)), True) == pytest.approx((1.0, 0.7575059933447589, 1.0))
    assert improvement([[0.0, 0.0, 1.0, NAN]], True)[0] == pytest.approx(2 / 3)


# Of the paper's shape: three metrics, eleven rows beside the reference, six blocks, five seeds.
METRICS, ROWS, BLOCKS, SEEDS, GRIDS = 3, 11, 6, 5, 2000


def simulate(generator, effects=0.0, rows=ROWS, blocks=BLOCKS):
    """Differences [G, M, R, B, S] of rows with noise of their own to a reference with its own, from block to block
    (the variances differ by a factor of about 50 between the calmest and the wildest of six)."""
    shape = (GRIDS, METRICS, rows + 1, blocks, SEEDS)
    noise = np.exp(0.8 * generator.standard_normal((GRIDS, 1, 1, blocks, 1))) * generator.standard_normal(shape)
    return effects + noise[:, :, 1:] - noise[:, :, :1]


@pytest.mark.parametrize("blocks", [1, 3, 6, 12])
def test_intervals_cover_the_true_mean_difference(blocks):
    generator = np.random.default_rng(blocks)
    # What a row gains differs from block to block; the mean over these blocks is estimated.
    effects = generator.standard_normal((GRIDS, METRICS, 2, blocks, 1))
    estimate = mean_difference(simulate(generator, effects, rows=2, blocks=blocks))
    truth = effects.mean(axis=(-2, -1))
    covered = (estimate.low <= truth) & (truth <= estimate.high)
    assert 0.93 <= covered.mean() <= 0.97


def test_probabilities_of_improvement_are_covered():
    generator = np.random.default_rng(1)
    scale = np.exp(0.8 * generator.standard_normal((GRIDS, BLOCKS, 1)))
    effects = generator.standard_normal((GRIDS, BLOCKS, 1))
    _, low, high = improvement(effects + scale * generator.standard_normal((GRIDS, BLOCKS, SEEDS)), True)
    truth = stats.norm.cdf(effects / scale).mean(axis=(1, 2))
    # Blocks differ, so the interval is wider than it needs to be.
    assert ((low <= truth) & (truth <= high)).mean() >= 0.95


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_few_null_grids_make_a_false_claim(missing):
    generator = np.random.default_rng(2)
    differences = simulate(generator)
    differences[generator.random(differences.shape) < missing] = NAN
    differs, _ = claims(mean_difference(differences), 1e-9)
    assert (differs < 0.05).any(axis=(1, 2)).mean() <= 0.06


def test_few_grids_call_rows_the_same_that_differ_by_what_matters():
    _, same = claims(mean_difference(simulate(np.random.default_rng(3), effects=5.0)), 5.0)
    assert 0 < (same < 0.05).any(axis=(1, 2)).mean() <= 0.06


def test_effects_are_found():
    differs, same = claims(mean_difference(simulate(np.random.default_rng(4), effects=5.0)), 10.0)
    assert (differs < 0.05).mean() > 0.8 and (same < 0.05).mean() > 0.8
