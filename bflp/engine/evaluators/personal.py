"""A model for each client of the last round: its own, and one between its own and the global model.

The personal posterior of client k is the barycentre of its local posterior, as it was after the last round's training,
and the global one, with the weights

    lambda / (1 + lambda)   and   1 / (1 + lambda)

the first of which is `local_share` here: 0 is the global model, 1 the local one. Weights that are single numbers are
averaged. Each is measured on the test set (global), and on the test set with its samples weighted to the client's label
shares (local); a metric is the mean over these clients.

"Cost-Free Personalization via Information-Geometric Projection in Bayesian Federated Learning" (arXiv 2509.10132).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bflp.aggregators import AggregationSettings
from bflp.engine.evaluators import Measured
from bflp.engine.fairness import client_metrics, label_counts
from bflp.engine.metrics import accuracy, ece, nll
from bflp.engine.predictions import Predictions

if TYPE_CHECKING:
    from bflp.engine.evaluation import Subject
    from bflp.engine.settings import PosteriorSettings
    from bflp.networks.layout import Layout

OF = {"accuracy": accuracy, "ece": ece, "nll": nll}
# Whose model, on whose data.
KINDS = (("local", "local"), ("local", "global"), ("global", "local"), ("personal", "local"), ("personal", "global"))
METRICS = {
    f"{model}_on_{data}_{name}": (f"{of.TITLE}, {model} on {data}", of.UNIT, of.HIGHER_IS_BETTER, of.DIGITS)
    for model, data in KINDS
    for name, of in OF.items()
}


def evaluate(subject: Subject, asked: dict[str, Any]) -> Measured:
    """Accuracy (%), ECE (%) and NLL of KINDS: of each client, and their means.

    asked: `local_share`, and `rule`, the name of a barycentre in bflp.aggregators.
    """
    federation, inputs = subject.federation, subject.federation.inputs
    assert subject.clients is not None
    counts = label_counts(inputs.indices, inputs.offsets, inputs.train_labels, inputs.labels)
    values: dict[str, dict[int, float]] = {name: {} for name in METRICS}
    shared, layout, posterior = subject.model.numpy(), federation.layout, federation.settings.posterior
    for client, vector in subject.clients.items():
        own = projected(vector.numpy(), shared, asked["local_share"], asked["rule"], layout, posterior)
        models = {
            "local": subject.predict(vector),
            "personal": subject.predict(subject.model.new_tensor(own)),
            "global": subject.predictions,
        }
        for model, data in KINDS:
            for name, value in _measured(models[model], data, counts[[client]]).items():
                if not np.isnan(value):
                    values[f"{model}_on_{data}_{name}"][client] = value
    clients = range(len(inputs.sizes))
    return Measured(
        {name: float(np.mean(list(found.values()))) if found else None for name, found in values.items()},
        {
            name: [round(found[client], 6) if client in found else None for client in clients]
            for name, found in values.items()
        },
    )


def _measured(predictions: Predictions, data: str, counts: NDArray[np.int64]) -> dict[str, float]:
    if data == "local":
        return {name: float(value[0]) for name, value in client_metrics(predictions, counts).items()}
    return {name: of.metric(predictions) for name, of in OF.items()}


def projected(
    local: NDArray[np.float32],
    shared: NDArray[np.float32],
    local_share: float,
    rule: str,
    layout: Layout,
    posterior: PosteriorSettings | None,
) -> NDArray[np.float32]:
    """Between the local and the global (shared) model [D], [D] -> [D]. posterior: None where all are plain numbers."""
    pair = np.stack([local, shared]).astype(np.float64)
    weights = np.array([local_share, 1 - local_share])
    found = weights @ pair
    if posterior is not None:
        # By name: one barycentre's code then concerns only the cells that ask for it. None of them draws.
        barycentre = importlib.import_module(f"bflp.aggregators.{rule.lower()}").aggregate
        settings, generator = AggregationSettings(bounds=posterior.bounds), np.random.default_rng(0)
        mean, log_variance = barycentre(
            pair[:, layout.means], pair[:, layout.log_variances], weights, settings, generator
        )
        found[layout.means] = mean
        found[layout.log_variances] = (
            np.clip(log_variance, *posterior.bounds) if posterior.enforce == "project" else log_variance
        )
    return found.astype(np.float32)
