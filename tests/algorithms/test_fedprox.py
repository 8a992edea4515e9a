"""FedProx on three quadratics."""

import pytest
from algorithms.toy import TEN_STEPS, WEIGHTED, Toy, near

from bflp.algorithms import fedprox


@pytest.mark.parametrize(
    ("mu", "fixed"), [(0, 1.85), (0.01, 1.8402), (1, 0.67 / 0.49), (100, 0.8853), (1e6, WEIGHTED)], ids=str
)
def test_fixed_point_of_exact_clients(mu, fixed):
    """From the mean of the clients' minima to the minimum of their mean loss."""
    toy = Toy(fedprox, exact=True, settings=fedprox.Settings(mu)).start(fixed)
    assert toy.rounds(1)[0] == pytest.approx(fixed, abs=5e-5)


def test_exact_clients():
    toy = Toy(fedprox, exact=True, settings=fedprox.Settings(1))
    models = toy.rounds(60)
    assert models[0] == near(0.67)
    assert models[-1] == near(0.67 / 0.49)


def test_the_pull_goes_through_momentum():
    toy = Toy(fedprox, settings=fedprox.Settings(1), momentum=0.9, **TEN_STEPS)
    assert toy.rounds(1)[0] == near(0.4488155761)


def test_without_pull_it_is_fedavg_bit_for_bit():
    training = {"momentum": 0.9, "weight_decay": 0.01}
    assert Toy(fedprox, settings=fedprox.Settings(0), **training).rounds(5) == Toy(**training).rounds(5)
