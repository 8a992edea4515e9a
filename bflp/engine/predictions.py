"""What metrics are computed from: a model's predictions on a test set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Array = NDArray[np.float64]
# The metrics of every evaluated round; the others are of the final model.
CURVES = ("accuracy", "ece", "nll", "spread")
# Those that are measured on held-out samples, too.
HELD_OUT = ("accuracy", "ece", "nll")


@dataclass(frozen=True)
class Predictions:
    """Predictions on N samples with L labels. All metrics are computed in float64.

    probabilities [N, L]: averaged over Monte Carlo samples; labels [N]: the true ones; bins: of the confidence;
    log_variances [P]: of the posterior, or None; sample_entropies [N]: mean entropy of the single Monte Carlo samples;
    ood_probabilities [M, L]: on a second data set, or None.
    """

    probabilities: Floats
    labels: NDArray[np.int64]
    bins: int
    log_variances: Floats | None
    sample_entropies: Floats
    ood_probabilities: Floats | None = None

    @cached_property
    def confidence(self) -> Array:
        """The largest probability [N]."""
        largest: Array = self.probabilities.max(axis=1).astype(np.float64)
        return largest

    @cached_property
    def correct(self) -> Array:
        """1 where the largest probability is the true label's, else 0 [N]."""
        hits: NDArray[np.bool_] = self.probabilities.argmax(axis=1) == self.labels
        return hits.astype(np.float64)

    @cached_property
    def true(self) -> Array:
        """The probability of the true label [N]."""
        return self.probabilities[np.arange(len(self.labels)), self.labels].astype(np.float64)

    @cached_property
    def bin_of(self) -> NDArray[np.int64]:
        """The bin of each confidence [N]: b where it lies in (b / bins, (b + 1) / bins]."""
        edges = np.arange(self.bins + 1) / self.bins
        # Left search puts a confidence on a boundary into the lower bin; rounding may put one above 1.
        return np.clip(np.searchsorted(edges, self.confidence, side="left") - 1, 0, self.bins - 1)

    @cached_property
    def entropies(self) -> Array:
        """Entropy of each prediction in nats [N]."""
        return entropy(self.probabilities)

    @cached_property
    def confusion(self) -> NDArray[np.int64]:
        """Samples by true and predicted label [L, L]."""
        count = self.probabilities.shape[1]
        pairs = self.labels * count + self.probabilities.argmax(axis=1)
        return np.bincount(pairs, minlength=count * count).reshape(count, count)


def entropy(probabilities: Floats) -> Array:
    """Entropy of each prediction in nats: probabilities [N, L] -> [N]."""
    values = probabilities.astype(np.float64)
    entropies: Array = -(values * np.log(np.where(values > 0, values, 1.0))).sum(axis=1)
    return entropies
