"""Fairness: the global model as each client would see it, and summaries over clients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bflp.engine.predictions import Array, Predictions

CLIENT_METRICS = ("accuracy", "ece", "nll")
# what -> its title, its unit (None: the metric's), whether higher is better (None: as the metric)
SUMMARIES: dict[str, tuple[str, str | None, bool | None]] = {
    "worst_decile": ("Worst decile {}", None, None),
    "gini": ("Gini of {}", "", False),
}


def label_counts(
    indices: NDArray[np.int64], offsets: NDArray[np.int64], labels: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Training samples per client and label [clients, count], from a partition's indices and offsets."""
    clients = len(offsets) - 1
    owner = np.repeat(np.arange(clients), np.diff(offsets))
    return np.bincount(owner * count + labels[indices], minlength=clients * count).reshape(clients, count)


def client_metrics(predictions: Predictions, counts: NDArray[np.int64]) -> dict[str, Array]:
    """Accuracy (%), ECE (%) and NLL [clients] on the test set, its samples weighted to each client's label shares.

    counts [clients, L]: training samples per client and label. A label that the test set lacks is left out, and the
    others' weights grow in proportion; a client that has no other, or no data, gets NaN.
    """
    labels, bins, count = predictions.labels, predictions.bins, counts.shape[1]
    per_label = np.bincount(labels, minlength=count)
    present = per_label > 0
    totals = counts[:, present].sum(axis=1, keepdims=True)
    shares = counts[:, present] / np.where(totals > 0, totals, np.nan)
    scale = per_label[present]
    accuracies = np.bincount(labels, weights=predictions.correct, minlength=count)[present] / scale
    losses = np.bincount(labels, weights=-np.log(predictions.true + 1e-8), minlength=count)[present] / scale
    gaps = np.bincount(
        labels * bins + predictions.bin_of, weights=predictions.correct - predictions.confidence, minlength=count * bins
    )
    per_bin = gaps.reshape(count, bins)[present] / scale[:, None]
    return {
        "accuracy": 100 * shares @ accuracies,
        "ece": 100 * np.abs(shares @ per_bin).sum(axis=1),
        "nll": shares @ losses,
    }


def summarise(values: Array, what: str, higher_is_better: bool) -> float:
    """One of SUMMARIES of a metric's values [clients]."""
    return gini(values) if what == "gini" else worst_decile(values, higher_is_better)


def gini(values: Array) -> float:
    """Gini coefficient of non-negative values: 0 when all are equal, towards 1 when one has everything."""
    ordered = np.sort(values)
    if ordered.sum() == 0:
        return 0.0
    ranks = np.arange(1, len(ordered) + 1)
    return float((2 * ranks - len(ordered) - 1) @ ordered / (len(ordered) * ordered.sum()))


def worst_decile(values: Array, higher_is_better: bool) -> float:
    """Mean of the worst tenth of the clients (at least one)."""
    ordered = np.sort(values if higher_is_better else -values)
    return float(abs(ordered[: max(1, len(values) // 10)].mean()))
