"""FedNova's normaliser, and its server's step on three quadratics."""

from types import SimpleNamespace

import pytest
from algorithms.toy import TEN_STEPS, WEIGHTED, Toy, near

from bflp.algorithms import fednova
from bflp.algorithms._steps import normaliser
from bflp.engine.settings import Training


@pytest.mark.parametrize(
    ("steps", "momentum", "mu", "value"),
    [
        (10, 0, 0, 10),
        (5, 0.9, 0, 13.1441),
        (10, 0.9, 0, 41.381059609),
        (94, 0.9, 0, 850.0044982),
        (940, 0.9, 0, 9310),
        (10, 0.9, 0.1, 41.0209422),
        (10, 0, 0.1, (1 - (1 - 0.01 * 0.1) ** 10) / (0.01 * 0.1)),
    ],
)
def test_normaliser(steps, momentum, mu, value):
    facts = SimpleNamespace(training=Training(1, 1, 0.02, momentum, 0, learning_rate_decay=0.5), round=2)
    assert normaliser(steps, facts, mu) == pytest.approx(value, abs=5e-8)


def test_normaliser_without_momentum_is_exactly_the_steps():
    assert normaliser(940, SimpleNamespace(training=Training(1, 1, 0.1, 0.0, 0), round=1)) == 940


def test_a_round():
    assert Toy(momentum=0.9).rounds(1)[0] == near(1.6052053997)
    assert Toy(fednova, momentum=0.9).rounds(1)[0] == near(1.2753638491)


@pytest.mark.parametrize("weights", ["data", "equal"])
def test_of_equal_steps_it_is_fedavg(weights):
    """Whatever the weights. The sums are other ones, so not to the last bit."""
    training = {"momentum": 0.9, "weights": weights, **TEN_STEPS}
    assert Toy(fednova, **training).rounds(3) == pytest.approx(Toy(**training).rounds(3), rel=0, abs=1e-14)


def test_first_round_of_ten_steps():
    assert Toy(fednova, momentum=0.9, **TEN_STEPS).rounds(1)[0] == near(0.4914746143)


def share_of_the_move(toy, fixed):
    """How far a round moves a fixed point, known to four decimals, against how far it moves a model 0.05 below."""
    below = toy.start(fixed - 0.05).rounds(1)[0] - (fixed - 0.05)
    assert below > 0
    return abs(toy.start(fixed).rounds(1)[0] - fixed) / below


@pytest.mark.parametrize(("rate", "fixed"), [(0.01, 0.9626), (0.001, 0.8836), (0.0001, 0.8759)], ids=str)
def test_fixed_point_goes_to_the_weighted_optimum(rate, fixed):
    """With the learning rate."""
    assert share_of_the_move(Toy(fednova, momentum=0.9, learning_rate=rate), fixed) < 0.002
    assert fixed == pytest.approx(WEIGHTED, abs=10 * rate)


@pytest.mark.parametrize(("rate", "fixed"), [(0.01, 1.7615), (0.000001, 1.4918)], ids=str)
def test_fixed_point_of_fedavg_does_not(rate, fixed):
    assert share_of_the_move(Toy(momentum=0.9, learning_rate=rate), fixed) < 0.002


def test_fixed_point_with_the_pull():
    """The normaliser knows of the pull: without, clients with many steps would count too little."""
    toy = Toy(fednova, settings=fednova.Settings(20), momentum=0.9, learning_rate=0.001)
    assert toy.rounds(80)[-1] == pytest.approx(WEIGHTED, abs=0.01)
