"""FOLA on quadratics, whose minimum it must stay at, with exact clients."""

import pytest
import torch
from algorithms.conjugate import Conjugate, quadratic

from bflp.algorithms import fola
from bflp.engine.local import Local, Trained

# l_k = h (w - c)^2 / 2, weights 0.1, 0.3, 0.6.
H, C, SIZES = (1.0, 4.0, 0.5), (-1.0, 0.5, 3.0), (100, 300, 600)
OPTIMUM = 0.875
FISHER = 0.1 * 1 + 0.3 * 4 + 0.6 * 0.5


class Toy(Conjugate):
    """Point estimates with their curvature, as the posterior of kind laplace gives them."""

    def __init__(self, penalty: float, floor: float = 1e-300) -> None:
        likelihoods = [quadratic(torch.tensor([0.0]), torch.tensor([0.0]))] * 3
        super().__init__(fola, fola.Settings(penalty, floor), likelihoods, "laplace", weights=1, sizes=SIZES)

    def solved(self, client: int, local: Local) -> Trained:
        assert local.kl_weight == 0.0 and local.prior is None and local.constant is None
        pull = 0.0 if local.pull is None else local.pull
        anchor = 0.0 if local.anchor is None else local.anchor
        w = (H[client] * C[client] + pull * anchor) / (H[client] + pull) * torch.ones(1).double()
        return Trained(torch.cat([w, 0 * w]), 0.0, 1, squares=torch.full_like(w, H[client]))


@pytest.mark.parametrize("penalty", [0.0, 1.0, 100.0])
def test_at_the_minimum_of_the_weighted_loss_in_every_round(penalty: float) -> None:
    toy = Toy(penalty)
    for _ in range(12):
        toy.rounds(1)
        assert toy.mean == pytest.approx([OPTIMUM], abs=1e-9)
        # Of this round's curvature alone, for all 1000 samples, and the prior's precision.
        assert toy.precision == pytest.approx([1000 * FISHER + 1], rel=1e-9)


def test_another_priors_precision_is_counted_once() -> None:
    toy = Toy(1.0)
    toy.prior = (0.0, 400.0)
    assert toy.rounds(1).precision == pytest.approx([1000 * FISHER + 400], rel=1e-9)


def test_the_known_curvature_decays_with_the_rounds() -> None:
    toy, expected = Toy(0.5), 0.0
    for round_ in range(1, 6):
        toy.rounds(1)
        expected = 0.5 / round_ * expected + FISHER
        assert toy.server["curvature"].tolist() == pytest.approx([expected], rel=1e-12)


def test_floor_averages_weights_that_no_client_has_seen() -> None:
    """Curvature 0 everywhere: the mean by data, not zero and not NaN."""
    toy = Toy(1.0, 1e-5)
    flat = torch.zeros(1).double()
    toy.round(trained=lambda client: Trained(torch.tensor([C[client], 0.0]).double(), 0.0, 1, squares=flat))
    assert toy.mean == pytest.approx([1.85])
    assert toy.precision == pytest.approx([1.0])
    assert toy.server["curvature"].tolist() == [0.0]
