"""What is measured of a final model: all metrics, reliability, confusion, and how each client would see it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from bflp.engine.clients import SUMMARIES, client_metrics, label_counts, summarise
from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import Predictions
from bflp.engine.round import Executor, Federation, predict


def evaluate(
    federation: Federation, model: Tensor, executor: Executor, samples: int, bins: int
) -> tuple[Predictions, dict[str, Any]]:
    """The predictions of a final model, and what an evaluation says of them.

    model [D]; samples: Monte Carlo samples. The noise is that of the last round's evaluation, so with as many samples
    and bins the curves' last values come out again, to the bit on the same kind of device.
    """
    predictions = predict(federation, model, federation.settings.rounds, executor, samples, bins, ood=True)
    return predictions, describe(federation, predictions)


def describe(federation: Federation, predictions: Predictions) -> dict[str, Any]:
    """The fields `final`, `reliability`, `confusion` and `clients` of an evaluation."""
    final = {name: metric.function(predictions) for name, metric in METRICS.items() if metric.function is not None}
    wrong = [name for name, value in final.items() if value is not None and not math.isfinite(value)]
    if wrong:
        raise ArithmeticError(f"{', '.join(wrong)} not finite")
    return {
        "final": final,
        "reliability": _reliability(predictions),
        "confusion": predictions.confusion.tolist(),
        "clients": _clients(federation, predictions),
    }


def _reliability(predictions: Predictions) -> dict[str, Any]:
    """Per confidence bin: samples, how many of them are right, and the sum of their confidences."""
    bins, bin_of = predictions.bins, predictions.bin_of
    confidence = np.bincount(bin_of, weights=predictions.confidence, minlength=bins)
    return {
        "counts": np.bincount(bin_of, minlength=bins).tolist(),
        "correct": np.bincount(bin_of, weights=predictions.correct, minlength=bins).astype(np.int64).tolist(),
        "confidence": [round(float(value), 6) for value in confidence],
    }


def _clients(federation: Federation, predictions: Predictions) -> dict[str, Any]:
    """A list per metric, null for a client without data, and its summaries over the others."""
    inputs = federation.inputs
    counts = label_counts(inputs.indices, inputs.offsets, inputs.train_labels, inputs.labels)
    has_data = inputs.sizes > 0
    seen: dict[str, Any] = {}
    for name, values in client_metrics(predictions, counts).items():
        seen[name] = [round(float(value), 6) if some else None for value, some in zip(values, has_data, strict=True)]
        for what in SUMMARIES:
            better = METRICS[name].higher_is_better
            seen[f"{name}_{what}"] = summarise(values[has_data], what, better)
    return seen
