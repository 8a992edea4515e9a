"""FedDyn on three quadratics."""

import numpy as np
import pytest
from algorithms.toy import CENTRES, CURVATURES, SIZES, UNIFORM, WEIGHTED, Toy, near

from bflp.algorithms import feddyn

SETTINGS = feddyn.Settings(0.1)


def test_of_the_paper():
    toy = Toy(feddyn, exact=True, weights="equal", settings=SETTINGS)
    assert toy.rounds(4) == [near(x) for x in (1.3858093126, 0.7227922511, 0.6207368122, 0.5795431393)]
    assert toy.rounds(500)[-1] == near(UNIFORM)
    gradients = [-0.1 * float(toy.states[client]["moved"]) for client in range(3)]
    assert gradients == pytest.approx(CURVATURES * (UNIFORM - CENTRES), abs=1e-8)
    assert float(toy.server.state["moved"]) == pytest.approx(0, abs=1e-7)


def test_weighted():
    toy = Toy(feddyn, exact=True, settings=SETTINGS)
    assert toy.rounds(4) == [near(x) for x in (1.6243243243, 1.1566727538, 1.1190700896, 1.1314931158)]
    assert toy.rounds(500)[-1] == near(WEIGHTED)


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "optimum"), [("equal", UNIFORM), ("data", WEIGHTED)])
def test_reaches_the_optimum_where_fedavg_does_not(weights, optimum):
    """Though five, fifteen and thirty steps solve no client's problem."""
    training = {"weights": weights, "learning_rate": 0.05}
    assert Toy(feddyn, settings=feddyn.Settings(1), **training).rounds(80)[-1] == pytest.approx(optimum, abs=1e-6)
    assert abs(Toy(**training).rounds(20)[-1] - optimum) > 0.1


@pytest.mark.parametrize(("weights", "optimum"), [("equal", UNIFORM), ("data", WEIGHTED)])
def test_one_client_a_round(weights, optimum):
    toy = Toy(feddyn, exact=True, weights=weights, fraction=1 / 3, settings=feddyn.Settings(1))
    toy.rounds(600)
    assert np.mean(toy.rounds(30)) == pytest.approx(optimum, abs=1e-4)


def test_a_round_of_one_client():
    """y solves its problem; its shift counts as one of three."""
    toy = Toy(feddyn, exact=True, fraction=1 / 3, settings=SETTINGS)
    model = toy.rounds(1)[0]
    (client,) = toy.states
    strength = 0.1 / (3 * SIZES[client] / SIZES.sum())
    solution = CURVATURES[client] * CENTRES[client] / (CURVATURES[client] + strength)
    assert model == near(solution + solution / 3)
