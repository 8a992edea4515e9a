"""Negative log likelihood: mean of -log(p_true + 1e-8)."""

import numpy as np

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "NLL", "", False, 2


def metric(predictions: Predictions) -> float:
    """In nats."""
    return float(-np.log(predictions.true + 1e-8).mean())
