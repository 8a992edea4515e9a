"""Spread of a posterior: the Euclidean norm of all standard deviations, from the stored log variances."""

import numpy as np

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "Spread", "", False, 2


def metric(predictions: Predictions) -> float | None:
    """None without a posterior."""
    if predictions.log_variances is None:
        return None
    return float(np.sqrt(np.exp(predictions.log_variances.astype(np.float64)).sum()))
