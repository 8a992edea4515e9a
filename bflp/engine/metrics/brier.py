"""Brier score: mean squared distance of the probabilities from the one-hot truth, 0 to 2 (Brier 1950)."""

import numpy as np

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "Brier", "", False, 2


def metric(predictions: Predictions) -> float:
    """sum over labels of (p - y)^2, a mean over the samples."""
    probabilities = predictions.probabilities.astype(np.float64)
    return float((np.square(probabilities).sum(axis=1) - 2 * predictions.true + 1).mean())
