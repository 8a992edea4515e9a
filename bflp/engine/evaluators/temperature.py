"""Temperature scaling: one number that makes a trained model more or less confident, and changes no prediction.

    log p'(y) = log p(y) / T - log sum_z exp(log p(z) / T)

with p the probabilities averaged over Monte Carlo samples. T is the one with the least NLL on the samples that are held
out of the clients. Its NLL is a sum over samples, so that clients which send theirs for each T of a grid find the same
T without sending a sample; averaging each client's own best T would not.

Guo et al. (2017), "On calibration of modern neural networks", there applied to the logits of one network.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bflp.engine.evaluators import Measured
from bflp.engine.metrics import ece, nll
from bflp.engine.predictions import Array, Floats, Predictions

if TYPE_CHECKING:
    from bflp.engine.evaluation import Subject

METRICS = {
    "temperature": ("Temperature", "", None, 2),
    "ece_calibrated": ("ECE, calibrated", "%", False, 2),
    "nll_calibrated": ("NLL, calibrated", "", False, 2),
}
# A model that is always right has no best temperature; beyond these, predictions hardly differ.
BOUNDS = (0.05, 20.0)
# Instead of probabilities that float32 rounds to 0.
LEAST = float(np.finfo(np.float32).tiny)


def evaluate(subject: Subject, asked: Any) -> Measured:
    """The temperature, and ECE (%) and NLL on the test set with it."""
    temperature = fitted(subject.predict(subject.model, held_out=True))
    calibrated = scaled(subject.predictions, temperature)
    return Measured(
        {
            "temperature": temperature,
            "ece_calibrated": ece.metric(calibrated),
            "nll_calibrated": nll.metric(calibrated),
        }
    )


def fitted(predictions: Predictions) -> float:
    """The temperature with the least NLL; 1 where none within BOUNDS is better."""
    # Imported here: it takes as long as a small cell, and only cells that ask for this need it.
    from scipy.optimize import minimize_scalar

    def loss(logarithm: float) -> float:
        return nll.metric(scaled(predictions, math.exp(logarithm)))

    found = minimize_scalar(loss, bounds=tuple(map(math.log, BOUNDS)), method="bounded", options={"xatol": 1e-6})
    return math.exp(found.x) if found.fun < nll.metric(predictions) else 1.0


def scaled(predictions: Predictions, temperature: float) -> Predictions:
    """Predictions with another temperature; 1 changes nothing."""
    if temperature == 1:
        return predictions
    return replace(predictions, probabilities=normalised(logarithms(predictions.probabilities) / temperature))


def logarithms(probabilities: Floats) -> Array:
    """Natural logarithms in float64, of LEAST for what is smaller: [N, L] -> [N, L]."""
    found: Array = np.log(np.maximum(probabilities.astype(np.float64), LEAST))
    return found


def normalised(logarithms: Array) -> Array:
    """Probabilities in proportion to the exponentials [N, L]."""
    exponentials = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    found: Array = exponentials / exponentials.sum(axis=1, keepdims=True)
    return found
