"""The metrics against hand-computed cases, against torchmetrics, and against definitions written out as loops."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassCalibrationError, MulticlassF1Score

from bflp.engine import evaluation, fairness
from bflp.engine.evaluation import _reliability
from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import CURVES, Predictions, entropy

# Label 0 is right in the first, third and last row. Confidences: 1, 1, 0.5, 0.6, 0.75.
PROBABILITIES = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.4, 0.6], [0.75, 0.25]])
LABELS = np.array([0, 0, 0, 0, 0])


def predictions(probabilities, labels, bins=10, log_variances=None, ood=None):
    entropies = entropy(probabilities)
    return Predictions(probabilities, labels, bins, log_variances, entropies, ood)


def of(name, probabilities, labels, bins=10, **others):
    """A metric by its name."""
    return METRICS[name].function(predictions(probabilities, labels, bins, **others))


def reliability(probabilities, labels, bins):
    return {key: np.array(value) for key, value in _reliability(predictions(probabilities, labels, bins)).items()}


def random_predictions(samples=3000, labels=10, seed=0):
    """Probabilities (float32) from flat to sharp, and labels that agree with them in part.

    No confidence is on a boundary of 100 bins, where torchmetrics has another convention: [lower, upper).
    """
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 1, (samples, labels)) * generator.uniform(0, 6, (samples, 1))
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = (probabilities / probabilities.sum(axis=1, keepdims=True)).astype(np.float32)
    likely = (probabilities.cumsum(axis=1) > generator.uniform(0, 0.999, (samples, 1))).argmax(axis=1)
    truth = np.where(generator.uniform(size=samples) < 0.7, likely, generator.integers(0, labels, samples))
    off_boundary = ~np.isin(probabilities.max(axis=1), (np.arange(101) / 100).astype(np.float32))
    assert off_boundary.mean() > 0.99
    return probabilities[off_boundary], truth[off_boundary]


# By hand


def test_accuracy_by_hand():
    # Of equal probabilities the first counts.
    assert of("accuracy", PROBABILITIES, LABELS) == 60.0
    assert of("accuracy", PROBABILITIES, 1 - LABELS) == 40.0


def test_calibration_error_by_hand():
    # Two bins. (0, 0.5]: row 3, |1 - 0.5|. (0.5, 1]: rows 1, 2, 4, 5, |(1 - 1) + (0 - 1) + (0 - 0.6) + (1 - 0.75)|.
    assert of("ece", PROBABILITIES, LABELS, 2) == pytest.approx(100 * (0.5 + 1.35) / 5)
    # One bin: 3 are right, the confidences sum to 3.85.
    assert of("ece", PROBABILITIES, LABELS, 1) == pytest.approx(100 * 0.85 / 5)
    # Four bins: (0.25, 0.5]: 0.5, (0.5, 0.75]: |-0.6 + 0.25|, (0.75, 1]: |0 - 1|.
    assert of("ece", PROBABILITIES, LABELS, 4) == pytest.approx(100 * (0.5 + 0.35 + 1) / 5)


def test_likelihood_by_hand():
    expected = -(math.log(1 + 1e-8) + math.log(1e-8) + math.log(0.5) + math.log(0.4) + math.log(0.75)) / 5
    assert of("nll", PROBABILITIES, LABELS) == pytest.approx(expected, rel=1e-7)
    assert of("nll", np.array([[0.0, 1.0]]), np.array([0])) == pytest.approx(8 * math.log(10))
    assert of("nll", np.array([[0.0, 1.0]]), np.array([1])) == pytest.approx(0, abs=1e-7)


def test_certain_and_right_is_perfect_and_certain_and_wrong_is_worst():
    certain = np.eye(3, dtype=np.float32)
    assert of("ece", certain, np.arange(3), 100) == 0
    assert of("ece", certain, np.array([1, 2, 0]), 100) == 100
    assert of("brier", certain, np.arange(3)) == 0
    assert of("brier", certain, np.array([1, 2, 0])) == 2


@pytest.mark.parametrize("bins", [1, 2, 3, 10, 15, 98, 100])
def test_a_confidence_on_a_boundary_belongs_to_the_bin_below(bins):
    boundaries = [k / bins for k in range(1, bins + 1) if 2 * k >= bins]  # two labels: at least 1/2
    for confidence in boundaries:
        histogram = reliability(np.array([[confidence, 1 - confidence]]), np.array([0]), bins)
        assert histogram["counts"].nonzero()[0].tolist() == [round(confidence * bins) - 1]
        just_above = np.nextafter(confidence, 2)
        if just_above < 1:
            histogram = reliability(np.array([[just_above, 1 - just_above]]), np.array([0]), bins)
            assert histogram["counts"].nonzero()[0].tolist() == [round(confidence * bins)]


def test_a_confidence_that_rounding_put_above_one():
    histogram = reliability(np.array([[np.nextafter(np.float32(1), np.float32(2)), 0]]), np.array([0]), 100)
    assert histogram["counts"][99] == 1


def spread(log_variances):
    return of("spread", PROBABILITIES, LABELS, log_variances=log_variances)


def test_spread_by_hand():
    # Standard deviations 3 and 4.
    assert spread(np.log(np.array([9.0, 16.0]))) == pytest.approx(5)
    # As many weights at e^-8 as the network for 28x28 images has, in float32: no sum of float32 may be used.
    assert spread(np.full(41_640, -8, dtype=np.float32)) == pytest.approx(math.sqrt(41_640) * math.exp(-4), rel=1e-12)
    assert spread(None) is None


# Against torchmetrics


@pytest.mark.parametrize("seed", range(3))
def test_accuracy_and_calibration_error_against_torchmetrics(seed):
    probabilities, labels = random_predictions(seed=seed)
    given, truth = torch.from_numpy(probabilities), torch.from_numpy(labels)
    accuracy = MulticlassAccuracy(10, average="micro")(given, truth)
    assert of("accuracy", probabilities, labels) == pytest.approx(100 * float(accuracy), rel=1e-6)
    for norm, found in (
        ("l1", of("ece", probabilities, labels, 100)),
        ("max", of("mce", probabilities, labels, 100)),
    ):
        error = MulticlassCalibrationError(10, n_bins=100, norm=norm)(given, truth)
        assert found == pytest.approx(100 * float(error), rel=1e-5), norm


def test_likelihood_against_torch():
    probabilities, labels = random_predictions()
    logarithms = torch.from_numpy(probabilities.astype(np.float64) + 1e-8).log()
    expected = torch.nn.functional.nll_loss(logarithms, torch.from_numpy(labels))
    assert of("nll", probabilities, labels) == pytest.approx(float(expected), rel=1e-12)


def sharp(confidence):
    """Two labels, the first with the given probability of at least 1/2: the surer, the smaller the entropy."""
    return np.stack([confidence, 1 - confidence], axis=1)


def auroc(inside, outside):
    return of("ood_auroc", sharp(inside), np.zeros(len(inside), dtype=int), ood=sharp(outside))


def test_auroc_against_torchmetrics_and_by_hand():
    generator = np.random.default_rng(1)
    inside, outside = 0.5 + generator.integers(5, 20, 300) / 40, 0.5 + generator.integers(0, 19, 200) / 40
    # The score is the unsureness.
    scores = torch.from_numpy(1 - np.concatenate([inside, outside]))
    truth = torch.cat([torch.zeros(300, dtype=torch.long), torch.ones(200, dtype=torch.long)])
    assert auroc(inside, outside) == pytest.approx(100 * float(BinaryAUROC()(scores, truth)), rel=1e-6)
    # Of the pairs (inside, outside) two are in order, one is not, the last is a tie.
    assert auroc(np.array([0.9, 0.7]), np.array([0.8, 0.7])) == pytest.approx(62.5)
    assert of("ood_auroc", PROBABILITIES, LABELS) is None


# Against their definitions


def test_reliability_adds_up_to_the_calibration_error():
    probabilities, labels = random_predictions()
    histogram = reliability(probabilities, labels, 15)
    assert histogram["counts"].sum() == len(labels)
    assert 100 * histogram["correct"].sum() / len(labels) == pytest.approx(of("accuracy", probabilities, labels))
    total = sum(
        count / len(labels) * abs(correct / count - confidence / count)
        for count, correct, confidence in zip(
            histogram["counts"], histogram["correct"], histogram["confidence"], strict=True
        )
        if count
    )
    assert of("ece", probabilities, labels, 15) == pytest.approx(100 * total)


def test_maximum_calibration_error_by_hand():
    # Two bins: |1 - 0.5| / 1 and |1.35| / 4.
    assert of("mce", PROBABILITIES, LABELS, 2) == pytest.approx(50)


def test_adaptive_calibration_error_by_hand():
    # By confidence: 0.5 right, 0.6 wrong, 0.75 right | 1 right, 1 wrong: |2 - 1.85| and |1 - 2|.
    assert of("ace", PROBABILITIES, LABELS, 2) == pytest.approx(100 * (0.15 + 1) / 5)


def test_brier_score_and_entropy_by_hand():
    # 0, 2, 0.25 + 0.25, 0.36 + 0.36, 0.0625 + 0.0625
    assert of("brier", PROBABILITIES, LABELS) == pytest.approx((2 + 0.5 + 0.72 + 0.125) / 5)
    np.testing.assert_allclose(entropy(PROBABILITIES)[:3], [0, 0, math.log(2)])
    assert entropy(np.full((1, 8), 0.125))[0] == pytest.approx(math.log(8))


def test_client_metrics_are_those_of_a_test_set_with_the_client_s_labels():
    """Each test sample is repeated so often that the labels' frequencies are the client's."""
    probabilities = random_predictions(samples=130, labels=3)[0][:120]
    labels = np.repeat([0, 1, 2], [40, 60, 20])
    client_counts = np.array([[5, 0, 1], [1, 1, 1], [0, 7, 0]])
    found = fairness.client_metrics(predictions(probabilities, labels), client_counts)
    for client, counts in enumerate(client_counts):
        repeats = (counts * np.array([3, 2, 6]))[labels]  # 120 / 40, 120 / 60, 120 / 20
        repeated, truth = np.repeat(probabilities, repeats, axis=0), np.repeat(labels, repeats)
        assert found["accuracy"][client] == pytest.approx(of("accuracy", repeated, truth))
        assert found["ece"][client] == pytest.approx(of("ece", repeated, truth, 10))
        assert found["nll"][client] == pytest.approx(of("nll", repeated, truth))


def test_a_client_whose_labels_are_not_tested_has_no_metrics():
    probabilities = random_predictions(samples=30, labels=3)[0]
    found = fairness.client_metrics(predictions(probabilities, np.repeat([0, 1], 15)), np.array([[0, 0, 9], [0, 1, 9]]))
    assert all(np.isnan(values).tolist() == [True, False] for values in found.values())
    # Of the other, one label in ten is tested: it counts alone.
    for name in ("accuracy", "nll"):
        assert found[name][1] == pytest.approx(of(name, probabilities[15:], np.repeat(1, 15)))


def test_label_counts_are_of_the_samples_that_a_partition_names():
    """Sample 1 is nobody's, the second client has none."""
    indices, offsets, labels = np.array([3, 0, 4]), np.array([0, 2, 2, 3]), np.array([0, 1, 2, 1, 2])
    counts = fairness.label_counts(indices, offsets, labels, 4)
    assert counts.tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_the_worst_clients_are_those_of_low_accuracy_or_of_high_error():
    values = np.arange(20.0)
    assert fairness.summarise(values, "worst_decile", higher_is_better=True) == 0.5
    assert fairness.summarise(values, "worst_decile", higher_is_better=False) == 18.5
    assert fairness.summarise(values, "gini", higher_is_better=True) == fairness.gini(values) != 0


def test_gini_and_worst_decile():
    values = np.array([3.0, 0.0, 1.0])
    mean_difference = np.abs(values[:, None] - values).mean()
    assert fairness.gini(values) == pytest.approx(mean_difference / (2 * values.mean()))
    assert fairness.gini(np.full(4, 2.5)) == 0
    assert fairness.gini(np.zeros(4)) == 0
    twenty = np.random.default_rng(0).permutation(np.arange(20.0))
    assert fairness.worst_decile(twenty, higher_is_better=True) == 0.5
    assert fairness.worst_decile(twenty, higher_is_better=False) == 18.5
    assert fairness.worst_decile(twenty[twenty < 19], higher_is_better=True) == 0
    assert fairness.worst_decile(values, higher_is_better=True) == 0


def test_macro_f1_against_torchmetrics():
    probabilities, labels = random_predictions()
    expected = MulticlassF1Score(10, average="macro")(torch.from_numpy(probabilities), torch.from_numpy(labels))
    assert of("macro_f1", probabilities, labels) == pytest.approx(100 * float(expected), rel=1e-6)
    # Label 2 is predicted once and never tested: F1 of 2 / 3 and 1 over the two labels that are.
    assert of("macro_f1", np.eye(3)[[0, 2, 1, 1]], np.array([0, 0, 1, 1])) == pytest.approx(100 * 5 / 6)


def test_mutual_information_is_what_the_samples_disagree_about():
    """Two Monte Carlo samples that are sure of different labels: the mean knows nothing, each of them all."""
    mean = np.array([[0.5, 0.5]])
    sampled = Predictions(mean, np.array([0]), 10, None, np.array([0.0]))
    values = {name: METRICS[name].function(sampled) for name in ("entropy", "expected_entropy", "mutual_information")}
    assert values == pytest.approx({"entropy": math.log(2), "expected_entropy": 0, "mutual_information": math.log(2)})
    rounded = Predictions(mean, np.array([0]), 10, None, np.array([math.log(2) + 1e-6]))
    assert METRICS["mutual_information"].function(rounded) == 0


def test_equal_confidences_count_as_their_mean():
    """A constant prediction, right for half of the samples, wrong for the other half, sorted by that."""
    probabilities, labels = np.tile([0.68, 0.32], (1000, 1)), np.repeat([0, 1], 500)
    assert of("ace", probabilities, labels, 20) == pytest.approx(18.0)
    assert of("ace", probabilities[:7], labels[497:504], 3) == pytest.approx(100 * abs(3 / 7 - 0.68))


# All that is measured on demand; the test below fails for an evaluator that is not asked for here.
ON_DEMAND = {"temperature": True, "ensemble": {"beta": "fitted"}, "personal": {"local_share": 0.5, "rule": "W2"}}


def metrics_in_order(monkeypatch, shuffled, tied):
    """All metrics, those over clients and on demand included, of a made-up federation of two clients.

    shuffled: whether all that is predicted is in an order of its own, or sorted by label.
    """

    def predict(_, vector, samples):
        generator = np.random.default_rng(samples)
        labels = generator.integers(0, 4, samples)
        order = generator.permutation(samples) if shuffled else np.argsort(labels, kind="stable")
        generator = np.random.default_rng(int(10 * vector[0]))
        logits = generator.normal(0, 2, (samples, 4)) + 2 * np.eye(4)[labels]
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        if tied:
            probabilities = np.round(probabilities, 1)
            probabilities /= probabilities.sum(axis=1, keepdims=True)
        own, of_samples = probabilities[order], 0.9 * entropy(probabilities[order])
        return Predictions(own, labels[order], 15, np.array([-1.0, -2.0]), of_samples, own[:, ::-1] ** 2)

    monkeypatch.setattr(evaluation, "predict", lambda *given, ood=False: predict(*given[:2], 400))
    monkeypatch.setattr(evaluation, "predict_held_out", lambda *given: predict(*given[:2], 80))
    inputs = SimpleNamespace(indices=np.arange(40), offsets=np.array([0, 10, 40]), sizes=np.array([10, 30]), labels=4)
    inputs.train_labels = np.arange(40) % 4
    settings = SimpleNamespace(rounds=1, posterior=None)
    federation = SimpleNamespace(inputs=inputs, settings=settings, layout=None)
    members = {0: torch.tensor([1.0]), 1: torch.tensor([2.0])}
    _, found = evaluation.evaluate(federation, torch.tensor([0.0]), None, 1, 15, ON_DEMAND, members)
    return {**found["final"], **{f"clients_{name}": value for name, value in found["clients"].items()}}


@pytest.mark.parametrize("tied", [False, True])
def test_the_order_of_the_test_set_changes_no_metric(monkeypatch, tied):
    expected, found = (metrics_in_order(monkeypatch, shuffled, tied) for shuffled in (False, True))
    for name in METRICS:
        assert expected[name] is not None
        assert found[name] == pytest.approx(expected[name], rel=1e-6), name


def test_the_registry_names_every_file_and_knows_the_curves():
    assert list(METRICS)[:4] == list(CURVES)
    assert {"accuracy", "clients_accuracy_gini", "clients_ece_worst_decile", "macro_f1"} <= set(METRICS)
    assert METRICS["accuracy"].title == "Accuracy (%)"
    assert METRICS["clients_accuracy_worst_decile"].title == "Worst decile accuracy (%)"
    assert (METRICS["clients_nll_gini"].title, METRICS["clients_nll_gini"].higher_is_better) == ("Gini of NLL", False)
    with pytest.raises(KeyError):
        METRICS["nothing"]
