"""AUROC of telling a second data set from the test set by the entropy of predictions; ties count half."""

from bflp.engine.predictions import Predictions, entropy

TITLE, UNIT, HIGHER_IS_BETTER, DIGITS = "OOD AUROC", "%", True, 2


def metric(predictions: Predictions) -> float | None:
    """In %; None without a second data set."""
    if predictions.ood_probabilities is None:
        return None
    # Imported here: it takes as long as a small cell, and only cells with a second data set need it.
    from scipy.stats import mannwhitneyu

    scores = entropy(predictions.ood_probabilities)
    wins = mannwhitneyu(scores, predictions.entropies, method="asymptotic").statistic
    return 100.0 * float(wins / (len(scores) * len(predictions.entropies)))
