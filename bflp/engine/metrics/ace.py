"""Adaptive calibration error: as the ECE, with bins that hold equally many samples.

Samples of the same confidence count as their mean, so that the order of the test set does not matter.

The mean absolute gap over the bins of Nguyen and O'Connor (2015), "Posterior calibration and exploratory analysis for
natural language processing models", who take the root mean square; Nixon et al. (2019) do the same for each label.
"""

import numpy as np

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "Adaptive ECE", "%", False, 2


def metric(predictions: Predictions) -> float:
    """In %."""
    confidence, ties = np.unique(predictions.confidence, return_inverse=True)
    gaps = np.bincount(ties, weights=predictions.correct) / np.bincount(ties) - confidence
    parts = np.array_split(np.sort(ties), predictions.bins)
    return 100.0 * float(sum(abs(gaps[part].sum()) for part in parts) / len(predictions.labels))
