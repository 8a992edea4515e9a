"""Ranks over blocks, against frozen values of other packages."""

from __future__ import annotations

import numpy as np
import pytest

from bflp.reporting.statistics.ranks import (
    average_ranks,
    blocks_needed,
    critical_difference,
    not_told_apart,
    signed_rank,
)

# Accuracy of five rows in 12 blocks.
ACCURACY = np.array(
    [
        [80.07, 82.12, 77.05, 72.55, 75.78, 72.60, 79.75, 90.79, 76.11, 75.44, 84.00, 83.54],
        [79.75, 81.55, 78.27, 73.15, 76.18, 72.02, 80.83, 90.64, 76.71, 76.20, 83.51, 82.36],
        [79.49, 81.12, 77.40, 72.44, 76.50, 71.50, 80.80, 91.42, 75.45, 74.13, 83.07, 81.88],
        [81.33, 82.18, 78.59, 72.86, 76.78, 73.03, 80.45, 92.08, 77.37, 76.06, 84.70, 84.14],
        [79.00, 82.05, 76.10, 72.39, 76.14, 71.91, 80.80, 89.80, 75.82, 74.56, 84.26, 81.46],
    ]
)
# scikit-posthocs 0.17.1, posthoc_nemenyi_friedman: p of the pairs (0, 1), (0, 2), ... (3, 4)
NEMENYI = [0.937976, 0.735929, 0.073671, 0.572500, 0.265382, 0.369169, 0.158313, 0.001318, 0.999024, 0.000458]


def test_average_ranks_and_friedman():
    ranks = average_ranks(ACCURACY, True)
    # autorank 1.3.0, autorank(..., order="descending", force_mode="nonparametric"): meanrank, pvalue, cd
    assert ranks.average == pytest.approx([3.0833333333, 2.5833333333, 3.875, 1.4166666667, 4.0416666667])
    assert ranks.p == pytest.approx(0.00021228609370431558)
    assert ranks.critical_difference == pytest.approx(1.7607556243045581, rel=2e-5)  # its quantiles are approximate
    assert ranks.allowed
    assert average_ranks(-ACCURACY, False).average == pytest.approx(ranks.average)


def test_the_critical_difference_is_where_nemenyis_p_is_the_level():
    average = average_ranks(ACCURACY, True).average
    gaps = np.abs(np.subtract.outer(average, average))[np.triu_indices(5, 1)]
    for level in (0.001, 0.01, 0.05, 0.1, 0.3):
        assert ((gaps > critical_difference(5, 12, level)) == (np.array(NEMENYI) < level)).all()


@pytest.mark.parametrize(("rows", "quantile"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_quantiles_of_demsar_table_5(rows, quantile):
    assert critical_difference(rows, 6) == pytest.approx(quantile * np.sqrt(rows * (rows + 1) / 36), rel=3e-4)


def test_diagrams_need_blocks():
    assert [blocks_needed(rows) for rows in (3, 5, 7)] == [10, 10, 10]
    needed = blocks_needed(12)
    assert critical_difference(12, needed) <= 3 < critical_difference(12, needed - 1)
    assert not average_ranks(ACCURACY[:, :9], True).allowed
    assert not average_ranks(ACCURACY[:2], True).allowed
    assert np.isnan(average_ranks(np.ones((3, 12)), True).p)


def test_rows_that_are_not_told_apart():
    assert not_told_apart(np.array([1.0, 1.5, 2.0, 3.0, 5.0]), 1.0) == [(0, 2), (2, 3)]
    assert not_told_apart(np.array([1.0, 3.0]), 1.0) == []


@pytest.mark.parametrize(
    ("one", "other", "margin", "expected"),
    # baycomp 1.0.3, SignedRankTest(one, other, rope=margin).probs(), mean of three runs of 100,000 samples
    [
        (0, 1, 0.503, [0.00549, 0.94819, 0.04632]),
        (1, 3, 0.503, [0.0, 0.19197, 0.80803]),
        (2, 0, 0.203, [0.07158, 0.01177, 0.91665]),
    ],
)
def test_signed_rank(one, other, margin, expected):
    probabilities = signed_rank(ACCURACY[other] - ACCURACY[one], margin, np.random.default_rng(0))
    assert probabilities == pytest.approx(expected, abs=0.006)
