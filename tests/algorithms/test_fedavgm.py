"""FedAvgM on three quadratics."""

import pytest
from algorithms.toy import Toy, held

from bflp.algorithms import fedavgm


@pytest.mark.parametrize(
    ("nesterov", "models"), [(False, [0.67, 1.6147, 2.343727]), (True, [1.273, 1.903537, 1.93022])], ids=str
)
def test_first_rounds(nesterov, models):
    toy = Toy(held(fedavgm), exact=True, settings=fedavgm.Settings(nesterov=nesterov))
    assert toy.rounds(3) == pytest.approx(models, abs=5e-7)


def test_without_momentum_it_is_fedavg():
    """But for the order of sums, so not to the last bit."""
    toy = Toy(fedavgm, settings=fedavgm.Settings(momentum=0, learning_rate=1), momentum=0.9)
    assert toy.rounds(5) == pytest.approx(Toy(momentum=0.9).rounds(5), rel=0, abs=1e-14)
