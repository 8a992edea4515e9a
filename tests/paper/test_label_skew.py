"""How few labels clients have: by hand, and against a partition that was made with the data."""

import numpy as np
import pytest

from bflp.datasets.registry import BUILT_IN
from bflp.paper.label_skew import effective_labels, label_counts


def test_effective_labels_by_hand() -> None:
    # 1 / (1/4 + 1/4) = 2 with weight 4 of 6, 1 with weight 2 of 6
    assert effective_labels(np.array([[2, 2, 0], [0, 0, 2]])) == pytest.approx(2 * 4 / 6 + 1 * 2 / 6)
    assert effective_labels(np.full((3, 10), 7)) == pytest.approx(10)


@pytest.mark.parametrize("dataset", ["cifar10", "fmnist"])
def test_every_sample_is_counted_once(dataset: str) -> None:
    about = BUILT_IN[dataset]
    counts = label_counts(dataset, 10, 3, {"strategy": "dirichlet", "alpha": 0.5, "min_samples": 10})
    assert counts.sum(axis=0).tolist() == [about.train_size // about.labels] * about.labels
    assert counts.sum(axis=1).min() >= 10


def test_counts_are_those_that_a_cell_was_trained_with() -> None:
    """From the file of the partition of CIFAR-10 with seed 0 that was made with the data: its first clients."""
    counts = label_counts("cifar10", 10, 0, {"strategy": "dirichlet", "alpha": 0.5, "min_samples": 10})
    assert counts[:3].tolist() == [
        [338, 162, 11, 114, 381, 249, 399, 64, 3376, 0],
        [1, 586, 397, 169, 16, 115, 1014, 3252, 0, 0],
        [766, 108, 1042, 1745, 3624, 0, 0, 0, 0, 0],
    ]
