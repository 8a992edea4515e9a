"""Bins of reliability diagrams."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from bflp.reporting.figures.reliability import pooled_bins


def bins(counts, correct):
    return SimpleNamespace(counts=counts, correct=correct, confidence=[0.0] * len(counts))


def test_bins_are_pooled_over_seeds_and_neighbours():
    counts = [0] * 50 + [2] * 50
    edges, accuracy, share = pooled_bins([bins(counts, [0] * 50 + [1] * 50), bins(counts, counts)])
    assert edges.tolist() == list(np.linspace(0, 100, 21))
    assert np.isnan(accuracy[:10]).all() and accuracy[10:].tolist() == [75.0] * 10
    np.testing.assert_allclose(share, [0] * 10 + [0.1] * 10)


@pytest.mark.parametrize(("number", "bars"), [(15, 15), (20, 20), (25, 5), (50, 10), (100, 20), (3, 3), (1, 1)])
def test_bars_are_equally_wide_where_the_number_of_bins_allows_it(number, bars):
    edges, _, share = pooled_bins([bins([1] * number, [0] * number)])
    np.testing.assert_allclose(edges, np.linspace(0, 100, bars + 1))
    np.testing.assert_allclose(share, 1 / bars)


@pytest.mark.parametrize(("number", "bars"), [(23, 12), (46, 16), (97, 20)])
def test_a_prime_number_of_bins_has_bars_that_differ_by_a_bin(number, bars):
    counts = list(range(1, number + 1))
    edges, accuracy, share = pooled_bins([bins(counts, counts)])
    widths = np.round(np.diff(edges) * number / 100, 9)
    assert len(share) == bars and np.ptp(widths) == 1 and (widths % 1 == 0).all()
    assert accuracy.tolist() == [100.0] * bars
    # Of counts 1, 2, ... up to each edge.
    upto = np.round(edges * number / 100)
    np.testing.assert_allclose(np.cumsum(share), (upto * (upto + 1) / (number * (number + 1)))[1:])


def test_cells_with_other_numbers_of_bins_are_pooled_on_common_edges():
    # Halves: of 4 bins (1 + 2 of 4, 0 + 2 of 6), of 6 bins (0 + 0 + 0 of 0, 1 + 1 + 1 of 3).
    edges, accuracy, share = pooled_bins(
        [bins([2, 2, 3, 3], [1, 2, 0, 2]), bins([0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1])]
    )
    assert edges.tolist() == [0, 50, 100]
    np.testing.assert_allclose(accuracy, [75.0, 100 * 5 / 9])
    np.testing.assert_allclose(share, [4 / 13, 9 / 13])
