"""SCAFFOLD on three quadratics."""

import pytest
from algorithms.toy import CENTRES, CURVATURES, SIZES, TEN_STEPS, UNIFORM, WEIGHTED, Toy, near

from bflp.algorithms import scaffold
from bflp.engine.errors import NotFiniteError


def test_of_the_paper():
    toy = Toy(scaffold, weights="equal", learning_rate=0.05, **TEN_STEPS)
    assert toy.rounds(4) == [near(x) for x in (0.2386869952, 0.3680061345, 0.4301285953, 0.4543355029)]
    assert toy.rounds(100)[-1] == near(UNIFORM)


def test_the_servers_rate_scales_its_step():
    toy = Toy(scaffold, weights="equal", settings=scaffold.Settings(0.5), learning_rate=0.05, **TEN_STEPS)
    assert toy.rounds(1) == [near(0.2386869952 / 2)]


def test_a_control_is_the_gradient_of_a_single_step_whatever_the_rounds_rate():
    toy = Toy(scaffold, learning_rate=0.1, learning_rate_decay=0.5, local_epochs=1, batch_size=6)
    [before, _] = toy.rounds(2)
    assert [float(toy.states[k]["control"]) for k in range(3)] == pytest.approx(CURVATURES * (before - CENTRES))


def test_with_momentum():
    toy = Toy(scaffold, weights="equal", learning_rate=0.005, momentum=0.9, **TEN_STEPS)
    assert toy.rounds(4) == [near(x) for x in (0.1506844148, 0.2582760417, 0.3288887696, 0.3742665512)]
    assert toy.rounds(130)[-1] == near(UNIFORM)


def test_with_momentum_the_number_of_steps_is_the_wrong_divisor(monkeypatch):
    monkeypatch.setattr(scaffold, "normaliser", lambda steps, facts: steps)
    toy = Toy(scaffold, weights="equal", learning_rate=0.005, momentum=0.9, **TEN_STEPS)
    with pytest.raises(NotFiniteError):
        toy.rounds(130)


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "optimum"), [("equal", UNIFORM), ("data", WEIGHTED)])
@pytest.mark.parametrize("momentum", [0, 0.9])
def test_reaches_the_optimum_where_fedavg_does_not(weights, optimum, momentum):
    training = {"weights": weights, "momentum": momentum, "learning_rate": 0.01 if momentum == 0 else 0.003}
    assert Toy(scaffold, **training).rounds(80)[-1] == pytest.approx(optimum, abs=1e-6)
    assert abs(Toy(**training).rounds(20)[-1] - optimum) > 0.1


def test_one_client_a_round():
    """Absent clients keep counting: c stays the mean of all control variates."""
    toy = Toy(scaffold, fraction=1 / 3)
    for _ in range(10):
        toy.rounds(1)
        shares = SIZES / SIZES.sum()
        whole = sum(share * float(toy.states.get(k, {"control": 0})["control"]) for k, share in enumerate(shares))
        assert float(toy.server.state["control"]) == pytest.approx(whole, abs=1e-14)
    assert 1 <= len(toy.states) <= 3
    assert toy.rounds(400)[-1] == pytest.approx(WEIGHTED, abs=1e-4)
