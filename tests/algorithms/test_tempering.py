"""The weight on the divergence from the prior: by round, and in a client's optimum."""

import pytest
from algorithms.conjugate import TOY_G, Conjugate

from bflp.algorithms import tempering


def weights(settings: tempering.Settings, rounds: int) -> list[float]:
    toy = Conjugate(tempering, settings)
    found = []
    for toy.done in range(1, rounds + 1):
        found.append(toy.local(0).kl_weight)
    return found


def test_weight_by_round() -> None:
    assert weights(tempering.Settings(), 3) == [0.1, 0.1, 0.1]
    assert weights(tempering.Settings(weight=1.0, start=0.2, rounds=4), 7) == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 1, 1, 1]
    )


def test_below_one_the_posterior_is_cold() -> None:
    """A client's optimum is prior * likelihood^(1 / weight): A 4 and 10 at -1 and 0.2."""
    toy = Conjugate(tempering, tempering.Settings(weight=0.1), TOY_G[:1], sizes=(100,))
    toy.done = 1
    found = toy.solved(0, toy.local(0)).vector
    assert (-found[2:]).exp().tolist() == pytest.approx([41, 101])
    assert found[:2].tolist() == pytest.approx([-40 / 41, 20 / 101])
