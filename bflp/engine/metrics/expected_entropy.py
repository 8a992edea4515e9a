"""Mean entropy of the single Monte Carlo samples' predictions: aleatoric uncertainty (Depeweg et al. 2018)."""

import numpy as np

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "Expected entropy", "", None, 2


def metric(predictions: Predictions) -> float:
    """In nats."""
    return float(predictions.sample_entropies.astype(np.float64).mean())
