"""Accuracy, expected calibration error, negative log likelihood, and the spread of a posterior."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def accuracy(probabilities: Floats, labels: NDArray[np.int64]) -> float:
    """Share of samples whose largest probability is the true label's, in %. probabilities [N, L], labels [N]."""
    return 100.0 * float(np.mean(probabilities.argmax(axis=1) == labels))


def expected_calibration_error(probabilities: Floats, labels: NDArray[np.int64], bins: int) -> float:
    """Mean distance of accuracy and confidence over equal-width confidence bins, in % (Guo et al. 2017).

    Bin b holds the samples whose largest probability lies in (b / bins, (b + 1) / bins]; its
    |accuracy - mean confidence| is weighted by its share of the samples.
    """
    confidence = probabilities.max(axis=1).astype(np.float64)
    correct = (probabilities.argmax(axis=1) == labels).astype(np.float64)
    # Left search puts a confidence on a boundary into the lower bin; rounding may put one above 1.
    bin_of = np.clip(np.searchsorted(np.linspace(0, 1, bins + 1), confidence, side="left") - 1, 0, bins - 1)
    gaps = np.bincount(bin_of, weights=correct - confidence, minlength=bins)
    return 100.0 * float(np.abs(gaps).sum() / len(labels))


def negative_log_likelihood(probabilities: Floats, labels: NDArray[np.int64]) -> float:
    """Mean of -log(p_true + 1e-8), in nats."""
    true = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return float(-np.log(true + 1e-8).mean())


def spread(log_variances: Floats) -> float:
    """The Euclidean norm of all standard deviations, from the stored log variances [P]."""
    return float(np.sqrt(np.exp(log_variances.astype(np.float64)).sum()))
