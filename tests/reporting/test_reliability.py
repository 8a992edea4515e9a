"""Bins of reliability diagrams."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from bflp.reporting.figures.reliability import pooled_bins


def bins(counts, correct):
    return SimpleNamespace(counts=counts, correct=correct, confidence=[0.0] * len(counts))


def test_bins_are_pooled_over_seeds_and_neighbours():
    counts = [0] * 50 + [2] * 50
    edges, accuracy, share = pooled_bins([bins(counts, [0] * 50 + [1] * 50), bins(counts, counts)])
    assert edges.tolist() == list(np.linspace(0, 100, 21))
    assert np.isnan(accuracy[:10]).all() and accuracy[10:].tolist() == [75.0] * 10
    np.testing.assert_allclose(share, [0] * 10 + [0.1] * 10)


def test_cells_with_other_numbers_of_bins_are_pooled_on_common_edges():
    # Halves: of 4 bins (1 + 2 of 4, 0 + 2 of 6), of 6 bins (0 + 0 + 0 of 0, 1 + 1 + 1 of 3).
    edges, accuracy, share = pooled_bins(
        [bins([2, 2, 3, 3], [1, 2, 0, 2]), bins([0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1])]
    )
    assert edges.tolist() == [0, 50, 100]
    np.testing.assert_allclose(accuracy, [75.0, 100 * 5 / 9])
    np.testing.assert_allclose(share, [4 / 13, 9 / 13])
