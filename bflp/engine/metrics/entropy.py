"""Mean entropy of the predictions: total uncertainty."""

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "Entropy", "", None, 2


def metric(predictions: Predictions) -> float:
    """In nats."""
    return float(predictions.entropies.mean())
