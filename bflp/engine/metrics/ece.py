"""Expected calibration error: mean distance of accuracy and confidence over confidence bins of equal width.

Bin b holds the samples whose largest probability lies in (b / bins, (b + 1) / bins]; its
|accuracy - mean confidence| counts by its share of the samples.

Guo et al. (2017), "On calibration of modern neural networks".
"""

import numpy as np

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "ECE", "%", False, 2


def metric(predictions: Predictions) -> float:
    """In %."""
    gaps = np.bincount(
        predictions.bin_of, weights=predictions.correct - predictions.confidence, minlength=predictions.bins
    )
    return 100.0 * float(np.abs(gaps).sum() / len(predictions.labels))
