"""Mutual information of prediction and weights: epistemic uncertainty (Depeweg et al. 2018)."""

import numpy as np

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "Mutual information", "", None, 2


def metric(predictions: Predictions) -> float:
    """Entropy less expected entropy, in nats; not below 0 but for rounding."""
    sampled = float(predictions.sample_entropies.astype(np.float64).mean())
    return max(0.0, float(predictions.entropies.mean()) - sampled)
