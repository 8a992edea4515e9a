"""What a result says of the final model beyond the metrics of every round: calibration, uncertainty, fairness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.engine import metrics

CLIENT_METRICS = {"accuracy": True, "ece": False, "nll": False}  # name: whether higher is better


def label_counts(
    indices: NDArray[np.int64], offsets: NDArray[np.int64], labels: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Training samples per client and label [clients, count], from a partition's indices and offsets."""
    clients = len(offsets) - 1
    owner = np.repeat(np.arange(clients), np.diff(offsets))
    return np.bincount(owner * count + labels[indices], minlength=clients * count).reshape(clients, count)


def describe(
    last: Mapping[str, float | None],
    probabilities: metrics.Floats,
    sample_entropies: metrics.Floats,
    labels: NDArray[np.int64],
    bins: int,
    ood_probabilities: metrics.Floats | None,
    clients: NDArray[np.int64],
) -> dict[str, Any]:
    """The fields `final`, `reliability` and `clients` of a result.

    last: the metrics of the last round; probabilities [N, L] and sample_entropies [N] (mean entropy of the Monte
    Carlo samples) of the test set; ood_probabilities [M, L]: of the out-of-distribution data set; clients [C, L]:
    label counts.
    """
    histogram = metrics.reliability(probabilities, labels, bins)
    entropies = metrics.entropy(probabilities)
    total, aleatoric = float(entropies.mean()), float(sample_entropies.astype(np.float64).mean())
    final = {
        **last,
        "brier": metrics.brier_score(probabilities, labels),
        "adaptive_ece": metrics.adaptive_calibration_error(probabilities, labels, bins),
        "maximum_calibration_error": metrics.maximum_calibration_error(histogram),
        "entropy": total,
        "aleatoric": aleatoric,
        # The mutual information of prediction and weights; not below 0 but for rounding (Depeweg et al. 2018).
        "epistemic": max(0.0, total - aleatoric),
        "ood_auroc": None
        if ood_probabilities is None
        else metrics.auroc(entropies, metrics.entropy(ood_probabilities)),
    }
    per_client = metrics.client_metrics(probabilities, labels, bins, clients)
    seen_by_clients: dict[str, Any] = {}
    for name, higher_is_better in CLIENT_METRICS.items():
        values = getattr(per_client, name)
        seen_by_clients[name] = [round(float(value), 6) for value in values]
        seen_by_clients[f"{name}_worst_decile"] = metrics.worst_decile(values, higher_is_better)
        seen_by_clients[f"{name}_gini"] = metrics.gini(values)
    return {
        "final": final,
        "reliability": {
            "counts": histogram.counts.tolist(),
            "correct": histogram.correct.tolist(),
            "confidence": [round(float(value), 6) for value in histogram.confidence],
        },
        "clients": seen_by_clients,
    }
