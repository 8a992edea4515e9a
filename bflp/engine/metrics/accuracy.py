"""Share of the samples whose largest probability is that of the true label."""

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "Accuracy", "%", True, 2


def metric(predictions: Predictions) -> float:
    """In %."""
    return 100.0 * float(predictions.correct.mean())
