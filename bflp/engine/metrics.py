"""Accuracy, calibration, likelihood and uncertainty of predictions; the spread of a posterior.

All in float64 numpy: torchmetrics, which has some of them, takes longer to import than a small cell to train; the
tests compare with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def accuracy(probabilities: Floats, labels: NDArray[np.int64]) -> float:
    """Share of samples whose largest probability is the true label's, in %. probabilities [N, L], labels [N]."""
    return 100.0 * float(np.mean(probabilities.argmax(axis=1) == labels))


def expected_calibration_error(probabilities: Floats, labels: NDArray[np.int64], bins: int) -> float:
    """Mean distance of accuracy and confidence over equal-width confidence bins, in % (Guo et al. 2017).

    Bin b holds the samples whose largest probability lies in (b / bins, (b + 1) / bins]; its
    |accuracy - mean confidence| is weighted by its share of the samples.
    """
    confidence, correct, bin_of = _confidence_bins(probabilities, labels, bins)
    gaps = np.bincount(bin_of, weights=correct - confidence, minlength=bins)
    return 100.0 * float(np.abs(gaps).sum() / len(labels))


def negative_log_likelihood(probabilities: Floats, labels: NDArray[np.int64]) -> float:
    """Mean of -log(p_true + 1e-8), in nats."""
    true = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return float(-np.log(true + 1e-8).mean())


def spread(log_variances: Floats) -> float:
    """The Euclidean norm of all standard deviations, from the stored log variances [P]."""
    return float(np.sqrt(np.exp(log_variances.astype(np.float64)).sum()))


@dataclass(frozen=True)
class Reliability:
    """Samples sorted into equal-width bins of their largest probability.

    counts [bins]: samples; correct [bins]: how many of them are right; confidence [bins]: sum of their confidences.
    """

    counts: NDArray[np.int64]
    correct: NDArray[np.int64]
    confidence: NDArray[np.float64]


def reliability(probabilities: Floats, labels: NDArray[np.int64], bins: int) -> Reliability:
    """Bin b holds the samples whose largest probability lies in (b / bins, (b + 1) / bins]."""
    confidence, correct, bin_of = _confidence_bins(probabilities, labels, bins)
    return Reliability(
        np.bincount(bin_of, minlength=bins),
        np.bincount(bin_of, weights=correct, minlength=bins).astype(np.int64),
        np.bincount(bin_of, weights=confidence, minlength=bins).astype(np.float64),
    )


def maximum_calibration_error(bins: Reliability) -> float:
    """The largest |accuracy - mean confidence| of a bin that is not empty, in % (Naeini et al. 2015)."""
    used = bins.counts > 0
    return 100.0 * float((np.abs(bins.correct - bins.confidence)[used] / bins.counts[used]).max())


def adaptive_calibration_error(probabilities: Floats, labels: NDArray[np.int64], bins: int) -> float:
    """As the expected calibration error, in %, with bins that hold equally many samples (Nguyen and O'Connor 2015)."""
    confidence, correct, _ = _confidence_bins(probabilities, labels, bins)
    order = np.argsort(confidence, kind="stable")
    gaps = [abs(part.sum()) for part in np.array_split((correct - confidence)[order], bins)]
    return 100.0 * float(sum(gaps) / len(labels))


def brier_score(probabilities: Floats, labels: NDArray[np.int64]) -> float:
    """Mean squared distance of the probabilities from the one-hot truth, summed over labels: 0 to 2 (Brier 1950)."""
    truth = np.eye(probabilities.shape[1])[labels]
    return float(((probabilities.astype(np.float64) - truth) ** 2).sum(axis=1).mean())


def entropy(probabilities: Floats) -> NDArray[np.float64]:
    """Entropy of each sample's prediction in nats: probabilities [N, L] -> [N]."""
    values = probabilities.astype(np.float64)
    entropies: NDArray[np.float64] = -(values * np.log(np.where(values > 0, values, 1.0))).sum(axis=1)
    return entropies


def auroc(negatives: NDArray[np.float64], positives: NDArray[np.float64]) -> float:
    """Area under the ROC curve of a score that should be higher for positives, in %; ties count half."""
    # Imported here: it takes as long as a small cell, and only cells with a second data set need it.
    from scipy.stats import mannwhitneyu

    statistic = mannwhitneyu(positives, negatives, method="asymptotic").statistic
    return 100.0 * float(statistic / (len(positives) * len(negatives)))


@dataclass(frozen=True)
class ClientMetrics:
    """The global model as each client would see it: arrays [clients] of accuracy (%), ECE (%) and NLL."""

    accuracy: NDArray[np.float64]
    ece: NDArray[np.float64]
    nll: NDArray[np.float64]


def client_metrics(
    probabilities: Floats, labels: NDArray[np.int64], bins: int, label_counts: NDArray[np.int64]
) -> ClientMetrics:
    """The metrics on the test set, its samples weighted so that labels are as frequent as at each client.

    label_counts [clients, L]: training samples per client and label. A label that the test set lacks is left out,
    and the others' weights grow in proportion.
    """
    confidence, correct, bin_of = _confidence_bins(probabilities, labels, bins)
    count = label_counts.shape[1]
    per_label = np.bincount(labels, minlength=count)
    present = per_label > 0
    shares = label_counts[:, present] / np.maximum(label_counts[:, present].sum(axis=1, keepdims=True), 1)
    scale = per_label[present]
    true = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    accuracies = np.bincount(labels, weights=correct, minlength=count)[present] / scale
    losses = np.bincount(labels, weights=-np.log(true + 1e-8), minlength=count)[present] / scale
    by_label_and_bin = np.bincount(labels * bins + bin_of, weights=correct - confidence, minlength=count * bins)
    gaps = by_label_and_bin.reshape(count, bins)[present] / scale[:, None]
    return ClientMetrics(100 * shares @ accuracies, 100 * np.abs(shares @ gaps).sum(axis=1), shares @ losses)


def gini(values: NDArray[np.float64]) -> float:
    """Gini coefficient of non-negative values: 0 when all are equal, towards 1 when one has everything."""
    ordered = np.sort(values)
    if ordered.sum() == 0:
        return 0.0
    ranks = np.arange(1, len(ordered) + 1)
    return float((2 * ranks - len(ordered) - 1) @ ordered / (len(ordered) * ordered.sum()))


def worst_decile(values: NDArray[np.float64], higher_is_better: bool) -> float:
    """Mean of the worst tenth of the clients (at least one)."""
    ordered = np.sort(values if higher_is_better else -values)
    return float(abs(ordered[: max(1, len(values) // 10)].mean()))


def _confidence_bins(
    probabilities: Floats, labels: NDArray[np.int64], bins: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Each sample's largest probability, whether it is right (0 or 1), and its bin."""
    confidence = probabilities.max(axis=1).astype(np.float64)
    correct = (probabilities.argmax(axis=1) == labels).astype(np.float64)
    # Left search puts a confidence on a boundary into the lower bin; rounding may put one above 1.
    bin_of = np.clip(np.searchsorted(np.arange(bins + 1) / bins, confidence, side="left") - 1, 0, bins - 1)
    return confidence, correct, bin_of
