"""The clients of the last round as an ensemble, in place of the one model that the server made of theirs.

    log p(y) = beta * sum_k log p_k(y) + (1 - beta) * log mean_k p_k(y) + constant

with p_k the predictions of client k's model, averaged over its Monte Carlo samples. beta 0 is the mixture; 1 is the
product, which is Bayes' rule where the clients' data are independent and a prediction without data is uniform. Beta is
given, or has the least NLL on the samples that are held out of the clients, in which it is convex.

"Calibrated One Round Federated Learning with Bayesian Inference in the Predictive Space" (arXiv 2312.09817).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bflp.engine.evaluators import Measured
from bflp.engine.evaluators.temperature import logarithms, normalised
from bflp.engine.metrics import accuracy, ece, nll
from bflp.engine.predictions import Array, Floats, Predictions

if TYPE_CHECKING:
    from bflp.engine.evaluation import Subject

OF = (accuracy, ece, nll)
METRICS = {
    **{
        f"{of.TITLE.lower()}_{kind}": (f"{of.TITLE}, {kind}", of.UNIT, of.HIGHER_IS_BETTER, of.DIGITS)
        for kind in ("mixture", "product", "beta")
        for of in OF
    },
    "ensemble_beta": ("Beta of the ensemble", "", None, 2),
}


def evaluate(subject: Subject, asked: dict[str, Any]) -> Measured:
    """Accuracy (%), ECE (%) and NLL on the test set of the mixture, the product, and with beta; and beta.

    asked: `beta`, a number or "fitted".
    """
    beta = asked["beta"]
    if beta == "fitted":
        held_out = _members(subject, held_out=True)
        beta = fitted(held_out, *pooled(each.probabilities for each in held_out))
    members = _members(subject)
    sums = pooled(each.probabilities for each in members)
    final = {"ensemble_beta": float(beta)}
    for kind, power in {"mixture": 0.0, "product": 1.0, "beta": beta}.items():
        predictions = replace(members[0], probabilities=combined(*sums, power))
        final |= {f"{of.TITLE.lower()}_{kind}": of.metric(predictions) for of in OF}
    return Measured(final)


def _members(subject: Subject, held_out: bool = False) -> list[Predictions]:
    assert subject.clients is not None
    return [subject.predict(vector, held_out) for vector in subject.clients.values()]


def pooled(members: Iterable[Floats]) -> tuple[Array, Array]:
    """The sum of the logarithms of the clients' probabilities, and the logarithm of their mean: K of [N, L] -> [N, L].

    In float64, whatever the order of the clients to rounding.
    """
    found = [probabilities.astype(np.float64) for probabilities in members]
    product: Array = np.sum([logarithms(probabilities) for probabilities in found], axis=0)
    return product, logarithms(np.mean(found, axis=0))


def combined(product: Array, mixture: Array, beta: float) -> Array:
    """Probabilities [N, L]. product, mixture [N, L]: from `pooled`."""
    return normalised(beta * product + (1 - beta) * mixture)


def fitted(held_out: list[Predictions], product: Array, mixture: Array) -> float:
    """The beta in [0, 1] with the least NLL on held-out samples."""
    # Imported here: it takes as long as a small cell, and only cells that ask for this need it.
    from scipy.optimize import minimize_scalar

    def loss(beta: float) -> float:
        return nll.metric(replace(held_out[0], probabilities=combined(product, mixture, beta)))

    inside = float(minimize_scalar(loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-6}).x)
    # The search never tries the ends themselves.
    return min((0.0, inside, 1.0), key=loss)
