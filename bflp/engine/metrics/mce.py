"""Maximum calibration error: the largest |accuracy - mean confidence| of a bin that is not empty.

Naeini et al. (2015), "Obtaining well calibrated probabilities using Bayesian binning".
"""

import numpy as np

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "MCE", "%", False, 2


def metric(predictions: Predictions) -> float:
    """In %, over the bins of the ECE."""
    counts = np.bincount(predictions.bin_of, minlength=predictions.bins)
    gaps = np.bincount(
        predictions.bin_of, weights=predictions.correct - predictions.confidence, minlength=predictions.bins
    )
    return 100.0 * float((np.abs(gaps)[counts > 0] / counts[counts > 0]).max())
