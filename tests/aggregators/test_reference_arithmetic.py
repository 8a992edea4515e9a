"""The arithmetic of the paper's program: floored running sums, and the published spreads that follow from it."""

import math

import numpy as np
import pytest

from bflp.aggregators import AggregationSettings
from bflp.settings.rules import load_rule

REFERENCE = AggregationSettings(arithmetic="reference")


def log_variance_of(rule, log_variances, weights, settings=REFERENCE):
    """One log variance per client -> that of the result."""
    stored = np.array(log_variances, dtype=float)[:, None]
    _, found = load_rule(rule)(
        np.zeros_like(stored), stored, np.array(weights, dtype=float), settings, np.random.default_rng(0)
    )
    return found[0]


@pytest.mark.parametrize(
    ("rule", "growth"),
    [
        # The first total, log(0.1) - 8, is lifted to -8, then nine times 0.1 e^-8 are added: e^-8 * 1.9.
        ("EAA", 1.9),
        # e^-8 (1 + 9 * 0.01)
        ("GAA", 1.09),
        # The rules that are no running sums: unchanged, and 10 times as precise.
        ("AALV", 1.0),
        ("CF", 0.1),
    ],
)
def test_ten_equal_clients_at_the_lower_bound(rule, growth):
    assert log_variance_of(rule, [-8] * 10, [0.1] * 10) == pytest.approx(math.log(growth) - 8, abs=1e-12)


def test_floored_sum_step_by_step():
    # EAA, weights 1/2, 1/4, 1/4: log(1/2) - 8 is lifted to -8; + e^-8 / 4; + e^0 / 4.
    expected = math.log(1.25 * math.exp(-8) + 0.25)
    assert log_variance_of("EAA", [-8, -9, 0], [0.5, 0.25, 0.25]) == pytest.approx(expected, rel=1e-14)
    # The order of the clients matters: log(1/4) needs no lift.
    expected = math.log(0.25 + 0.75 * math.exp(-8))
    assert log_variance_of("EAA", [0, -9, -8], [0.25, 0.25, 0.5]) == pytest.approx(expected, rel=1e-14)
    # GAA squares the weights.
    expected = math.log(1.0625 * math.exp(-8) + 0.0625)
    assert log_variance_of("GAA", [-8, -9, 0], [0.5, 0.25, 0.25]) == pytest.approx(expected, rel=1e-14)


def test_the_last_total_is_not_floored():
    assert log_variance_of("EAA", [-8], [0.5]) == pytest.approx(math.log(0.5) - 8, rel=1e-14)


def test_log_variances_above_the_bounds_are_cut_before_they_are_weighed():
    assert log_variance_of("EAA", [20, 0], [0.5, 0.5]) == pytest.approx(math.log(0.5 * math.exp(8) + 0.5), rel=1e-14)
    assert log_variance_of("GAA", [20, 0], [0.5, 0.5]) == pytest.approx(math.log(0.25 * math.exp(8) + 0.25), rel=1e-14)


def test_a_total_above_narrow_bounds_is_cut_too():
    # log(1/3) + 0.1 is lifted to -0.1; log(e^-0.1 + e^0.1 / 3) = 0.24 is cut to 0.1; + e^0.1 / 3.
    narrow = AggregationSettings(arithmetic="reference", bounds=(-0.1, 0.1))
    assert log_variance_of("EAA", [0.1] * 3, [1 / 3] * 3, narrow) == pytest.approx(0.1 + math.log(4 / 3), rel=1e-14)


def test_exact_and_reference_agree_far_from_the_lower_bound():
    exact = AggregationSettings()
    for rule in ("EAA", "GAA"):
        clients = ([-2.0, 0.0, 3.0], [0.3, 0.3, 0.4])
        assert log_variance_of(rule, *clients) == pytest.approx(log_variance_of(rule, *clients, exact), rel=1e-12)


def test_means_are_the_weighted_means():
    means, weights = np.array([[1.0, -2.0], [5.0, 2.0]]), np.array([0.25, 0.75])
    for rule in ("EAA", "GAA"):
        mean, _ = load_rule(rule)(means, np.zeros((2, 2)), weights, REFERENCE, np.random.default_rng(0))
        np.testing.assert_allclose(mean, [4, 1], rtol=1e-15)


def simulated_spread(rule, arithmetic, samples, rounds, clients=10, weights=41_640):
    """The final spread when no data pull at the log variances, which then all move alike: one scalar tells.

    Local training: the KL divergence's gradient over the samples of a client (none at or outside the clamp's bounds),
    weight decay 1e-5, SGD with learning rate 0.01 and momentum 0.9, restarted in each round; 10 epochs of batches
    of 64. 41,640 is the number of variational weights for 28x28 images.
    """
    settings = AggregationSettings(arithmetic=arithmetic)
    log_variance = -9.0
    for _ in range(rounds):
        momentum = 0.0
        for _ in range(10 * math.ceil(samples / 64)):
            gradient = 1e-5 * log_variance
            if -8 < log_variance < 8:
                gradient += 0.5 * (math.exp(log_variance) - 1) / samples
            momentum = 0.9 * momentum + gradient
            log_variance -= 0.01 * momentum
        log_variance = log_variance_of(rule, [log_variance] * clients, [1 / clients] * clients, settings)
    return math.sqrt(weights * math.exp(log_variance))


@pytest.mark.parametrize(
    ("rule", "arithmetic", "ten_clients", "hundred_clients"),
    [
        ("AALV", "reference", 2.78, None),  # published 2.81
        ("CF", "reference", 1.18, None),
        ("GAA", "reference", 3.92, None),  # published 3.93
        ("EAA", "reference", 14.2, 72.7),  # published 15.5 and 79.2
        ("EAA", "exact", 5.4, 28),
        ("GAA", "exact", 1.2, None),
    ],
)
def test_spreads_of_the_paper_s_experiment(rule, arithmetic, ten_clients, hundred_clients):
    """10 clients with 6000 samples each for 50 rounds, and 10 active ones with 600 samples each for 500 rounds."""
    assert simulated_spread(rule, arithmetic, samples=6000, rounds=50) == pytest.approx(ten_clients, rel=0.02)
    if hundred_clients:
        assert simulated_spread(rule, arithmetic, samples=600, rounds=500) == pytest.approx(hundred_clients, rel=0.02)
