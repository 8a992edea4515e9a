"""BayesADMM against exact posteriors, with exact clients; and IVON on a client's problem with duals."""

import pytest
import torch
from algorithms.conjugate import (
    CENTRES,
    CURVATURES,
    EXACT_MEAN,
    EXACT_PRECISION,
    Conjugate,
    Quadratic,
    ivon_cell,
    logistic_clients,
    logistic_together,
    quadratic,
    train,
)

from bflp.algorithms import bayesadmm
from bflp.engine import ivon
from bflp.engine.settings import Training

FULL = bayesadmm.Settings(rho=1.0, damping=1.0)


def dual(toy: Conjugate, name: str) -> torch.Tensor:
    return torch.stack([toy.states[client][f"dual_{name}"] for client in sorted(toy.states)])


def test_exact_after_one_round_with_the_inverse_of_the_number_of_clients() -> None:
    toy = Conjugate(bayesadmm, bayesadmm.Settings(rho=1 / 3, damping=1.0), kind="ivon").rounds(1)
    assert toy.precision == pytest.approx(EXACT_PRECISION, rel=1e-9)
    assert toy.mean == pytest.approx(EXACT_MEAN, rel=1e-9)


def test_exact_under_another_prior() -> None:
    toy = Conjugate(bayesadmm, bayesadmm.Settings(rho=1 / 3, damping=1.0), kind="ivon", prior=(0.5, 4.0)).rounds(1)
    precision = CURVATURES.sum(0) + 4
    assert toy.precision == pytest.approx(precision.tolist(), rel=1e-9)
    assert toy.mean == pytest.approx((((CURVATURES * CENTRES).sum(0) + 2) / precision).tolist(), rel=1e-9)


def test_sequence_and_duals() -> None:
    toy = Conjugate(bayesadmm, FULL, kind="ivon", initial=(0.4, 9.0))  # the prior counts, not the initial model
    for number, expected in enumerate([(22, 19), (27.25, 23.5), (31.1875, 26.875)]):
        assert toy.rounds(1).precision == pytest.approx(expected, rel=1e-9)
        if number == 0:
            assert toy.mean == pytest.approx((0.7954545455, 0.6578947368), rel=1e-9)
    toy.rounds(150)
    assert toy.precision == pytest.approx(EXACT_PRECISION, rel=1e-9)
    assert toy.mean == pytest.approx(EXACT_MEAN, rel=1e-9)
    assert torch.allclose(dual(toy, "precision"), -CURVATURES, rtol=1e-8)
    assert torch.allclose(dual(toy, "shift"), -CURVATURES * CENTRES, rtol=1e-8)


def test_cold_posterior() -> None:
    toy = Conjugate(bayesadmm, FULL, kind="ivon", temperature=0.1).rounds(200)
    assert toy.precision == pytest.approx((421, 361), rel=1e-9)
    assert toy.mean == pytest.approx((0.8313539192, 0.6925207756), rel=1e-9)
    assert torch.allclose(dual(toy, "precision"), -10 * CURVATURES, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "damping"), [(1.0, 1.0), (0.5, 0.1)])
def test_some_of_the_clients_each_round(rho: float, damping: float) -> None:
    toy = Conjugate(bayesadmm, bayesadmm.Settings(rho, damping), kind="ivon")
    for number in range(900):
        toy.round([number % 3, (number + 1) % 3] if number % 4 else [number % 3])
    assert toy.precision == pytest.approx(EXACT_PRECISION, rel=1e-6)
    assert toy.mean == pytest.approx(EXACT_MEAN, rel=1e-6)


@pytest.mark.slow
def test_logistic_regression_reaches_inference_on_all_data() -> None:
    """With duals that stay 0 a quadratic toy would converge as well; this one would not."""
    together = logistic_together()
    settings = bayesadmm.Settings(rho=1.0, damping=0.2)
    toy = Conjugate(bayesadmm, settings, logistic_clients(), "ivon", weights=1, sizes=(20, 20, 20)).rounds(250)
    assert toy.precision == pytest.approx(together.precision.tolist(), rel=1e-6)
    assert toy.mean == pytest.approx((together.shift / together.precision).tolist(), rel=1e-6)


def test_ivon_solves_a_clients_problem_with_duals() -> None:
    """A 4, c -1, n 100; rho 0.5, S_g 10, m_g 0.3, v -1.5, V -2: 0.5 S = 0.5 * 10 + 4 - 2, so S = 14."""
    copies = 400
    toy = Conjugate(
        bayesadmm,
        bayesadmm.Settings(rho=0.5),
        [quadratic(torch.full((copies,), 4.0), torch.full((copies,), -1.0))],
        "ivon",
        weights=copies,
        sizes=(100,),
    )
    ones = torch.ones(copies).double()
    toy.states = {0: {"dual_precision": -2 * ones, "dual_shift": -1.5 * ones, "precision": ones, "shift": ones}}
    # With one client and rho 0.5 the server's a is 2/3.
    sums = {"dual_precision": 1 - 15 * ones, "dual_shift": -4.5 * ones, "precision": 0 * ones, "shift": 0 * ones}
    toy.server, toy.done = sums, 2
    toy.model = torch.cat([0.3 * ones, -torch.log(10 * ones)])
    local = toy.local(0)
    assert local.prior is not None
    assert torch.allclose(local.prior.precision, 10 * ones) and torch.allclose(local.prior.shift, 3 * ones)
    exact = toy.solved(0, local).vector
    assert torch.allclose(exact[:copies], -4 / 7 * ones) and torch.allclose((-exact[copies:]).exp(), 14 * ones)
    network = Quadratic(torch.full((copies,), 0.04).double(), torch.full((copies,), -1.0).double(), 100)
    settings = ivon_cell(Training(30, 1, 0.02, 0.0, 0.0), betas=(0.9, 0.998), rescale=False)
    found = train(ivon, network, toy.model[:copies], toy.model[copies:], settings, round_=2, local=local)
    assert float((-found[copies:]).exp().mean()) == pytest.approx(14, rel=0.01)
    assert float(found[:copies].mean()) == pytest.approx(-4 / 7, abs=0.01)
