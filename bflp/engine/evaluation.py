"""What is measured of a final model: all metrics, reliability, confusion, and how each client would see it."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from bflp.engine.evaluators import Measured
from bflp.engine.fairness import SUMMARIES, client_metrics, label_counts, summarise
from bflp.engine.metrics.registry import METRICS, filed
from bflp.engine.predictions import Predictions
from bflp.engine.round import Executor, Federation, predict, predict_held_out


@dataclass(frozen=True)
class Subject:
    """A cell with a final model [D], as evaluators see it.

    predictions: the model's, on the test set; clients: the parameters [D] that the clients of the last round trained,
    by client; None: not there, so that no evaluator may be asked for that needs them.
    """

    federation: Federation
    model: Tensor
    predictions: Predictions
    executor: Executor
    samples: int
    clients: Mapping[int, Tensor] | None = None

    def predict(self, vector: Tensor, held_out: bool = False) -> Predictions:
        """The predictions of any parameters [D] on the test set, or on the held-out samples.

        With the noise of the last round's evaluation: the same parameters give the same to the bit.
        """
        function = predict_held_out if held_out else predict
        rounds = self.federation.settings.rounds
        return function(self.federation, vector, rounds, self.executor, self.samples, self.predictions.bins)


def evaluate(
    federation: Federation,
    model: Tensor,
    executor: Executor,
    samples: int,
    bins: int,
    asked: Mapping[str, Any] | None = None,
    clients: Mapping[int, Tensor] | None = None,
) -> tuple[Predictions, dict[str, Any]]:
    """The predictions of a final model, and what an evaluation says of them.

    model [D]; samples: Monte Carlo samples; asked: evaluators by name, with their settings; clients: see Subject. The
    noise is that of the last round's evaluation, so with as many samples and bins the curves' last values come out
    again, to the bit on the same kind of device.
    """
    predictions = predict(federation, model, federation.settings.rounds, executor, samples, bins, ood=True)
    subject = Subject(federation, model, predictions, executor, samples, clients)
    # By name: each then concerns only the cells that ask for it.
    modules = {name: importlib.import_module(f"bflp.engine.evaluators.{name}") for name in asked or ()}
    return predictions, describe(
        federation, predictions, [module.evaluate(subject, (asked or {})[name]) for name, module in modules.items()]
    )


def describe(federation: Federation, predictions: Predictions, further: Sequence[Measured] = ()) -> dict[str, Any]:
    """The fields `final`, `reliability`, `confusion`, `class_accuracy` and `clients` of an evaluation.

    further: from evaluators.
    """
    functions = {name: METRICS[name].function for name in filed()}
    final = {name: function(predictions) for name, function in functions.items() if function is not None}
    final |= {name: value for measured in further for name, value in measured.final.items()}
    wrong = [name for name, value in final.items() if value is not None and not math.isfinite(value)]
    if wrong:
        raise ArithmeticError(f"{', '.join(wrong)} not finite")
    return {
        "final": final,
        "reliability": _reliability(predictions),
        "confusion": predictions.confusion.tolist(),
        "class_accuracy": class_accuracy(predictions),
        "clients": _clients(federation, predictions) | {key: of for one in further for key, of in one.clients.items()},
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


def class_accuracy(predictions: Predictions) -> list[float | None]:
    """Share of each label's samples that are predicted right, in %; None for a label that the test set lacks."""
    right, samples = np.diag(predictions.confusion), predictions.confusion.sum(axis=1)
    return [round(100 * int(hits) / int(of), 6) if of else None for hits, of in zip(right, samples, strict=True)]


def _clients(federation: Federation, predictions: Predictions) -> dict[str, Any]:
    """A list per metric, null for a client without data of tested labels, and its summaries over the others."""
    inputs = federation.inputs
    counts = label_counts(inputs.indices, inputs.offsets, inputs.train_labels, inputs.labels)
    seen: dict[str, Any] = {}
    for name, values in client_metrics(predictions, counts).items():
        seen[name] = [None if math.isnan(value) else round(float(value), 6) for value in values]
        for what in SUMMARIES:
            better = bool(METRICS[name].higher_is_better)
            seen[f"{name}_{what}"] = summarise(values[~np.isnan(values)], what, better)
    return seen
