"""Macro F1: the harmonic mean of precision and recall of each label, averaged over the labels of the test set."""

import numpy as np

from bflp.engine.predictions import Predictions

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "Macro F1", "%", True, 2


def metric(predictions: Predictions) -> float:
    """In %; a label that is never predicted right counts 0."""
    confusion = predictions.confusion
    true, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    scores = 2 * np.diag(confusion) / np.maximum(true + predicted, 1)
    return 100.0 * float(scores[true > 0].mean())
