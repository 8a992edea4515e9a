"""PVI against exact posteriors, and against variational inference on all data at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from algorithms.conjugate import (
    EXACT_MEAN,
    EXACT_PRECISION,
    TOY_G,
    Conjugate,
    logistic_clients,
    logistic_together,
)

from bflp.algorithms import pvi
from bflp.engine.client import client_update
from bflp.engine.inputs import Inputs
from bflp.engine.local import Chosen, Report, Trained
from bflp.engine.round import Federation
from bflp.engine.settings import CellSettings, PosteriorSettings, Training
from bflp.engine.work import Work
from bflp.networks.layout import Layout

THIRD = pvi.Settings(damping=1 / 3)


def test_exact_after_one_round() -> None:
    toy = Conjugate(pvi).rounds(1)
    assert toy.precision == pytest.approx(EXACT_PRECISION, rel=1e-12)
    assert toy.mean == pytest.approx(EXACT_MEAN, rel=1e-9)


def test_damped_sequence() -> None:
    toy = Conjugate(pvi, THIRD)
    for expected in [(15, 13), (24.333333333, 21), (30.555555556, 26.333333333)]:
        assert toy.rounds(1).precision == pytest.approx(expected, rel=1e-9)
    toy.rounds(60)
    assert toy.precision == pytest.approx(EXACT_PRECISION, rel=1e-9)
    assert toy.mean == pytest.approx(EXACT_MEAN, rel=1e-9)


@pytest.mark.parametrize("initial", [(0.5, 0.2), (-1.0, 20.0), (0.3, 400.0)])
def test_exact_from_another_model_than_the_prior(initial: tuple[float, float]) -> None:
    """Also where the initial model is more precise than the posterior: the guard lets that go within rounds."""
    toy = Conjugate(pvi, initial=initial).rounds(1)
    if initial[1] <= 20:
        assert toy.precision == pytest.approx(EXACT_PRECISION, rel=1e-9)
    toy.rounds(3)
    assert toy.precision == pytest.approx(EXACT_PRECISION, rel=1e-9)
    assert toy.mean == pytest.approx(EXACT_MEAN, rel=1e-9)


def test_some_of_the_clients_each_round() -> None:
    """The sites of those absent stay, so that a few rounds over all suffice."""
    toy = Conjugate(pvi)
    for drawn in [[0, 2], [1], [2]]:
        toy.round(drawn)
    assert toy.precision == pytest.approx(EXACT_PRECISION, rel=1e-9)
    assert toy.mean == pytest.approx(EXACT_MEAN, rel=1e-9)


def test_logistic_regression_reaches_inference_on_all_data() -> None:
    """No conjugate likelihoods: a product of the posteriors would be off."""
    clients, together = logistic_clients(), logistic_together()
    toy = Conjugate(pvi, THIRD, clients, weights=1, sizes=(20, 20, 20)).rounds(80)
    assert toy.precision == pytest.approx(together.precision.tolist(), rel=1e-8)
    assert toy.mean == pytest.approx((together.shift / together.precision).tolist(), rel=1e-8)
    once = Conjugate(pvi, None, clients, weights=1, sizes=(20, 20, 20)).rounds(1)
    assert abs(once.precision[0] / together.precision[0] - 1) > 0.02


def test_guard_keeps_the_model_proper_and_the_product_of_prior_and_sites() -> None:
    """Clients that claim to know nothing at all, from a precise model."""
    toy = Conjugate(pvi, initial=(0.5, 50.0))
    toy.round(trained=lambda client: Trained(torch.tensor([9.0, 9.0, 20.0, 20.0]).double(), 0.0, 1))
    assert toy.precision == pytest.approx([5.0, 5.0])
    # The pair is scaled: the mean stays that of prior and sites, here the same change of both natural parameters.
    assert toy.mean == pytest.approx([0.5, 0.5], rel=1e-6)
    for name, of_prior in {"precision": 1.0, "shift": 0.0}.items():
        sites = torch.stack([state[name] for state in toy.states.values()])
        assert torch.allclose(of_prior + sites.sum(0), toy.server[name], rtol=1e-12)


def test_log_variances_count_within_their_bounds() -> None:
    toy = Conjugate(pvi, None, TOY_G[:1], sizes=(100,))
    assert toy.settings.posterior is not None
    toy.settings = replace(toy.settings, posterior=replace(toy.settings.posterior, bounds=(-3.0, 3.0)))
    toy.round(trained=lambda client: Trained(torch.tensor([2.0, 2.0, -9.0, -9.0]).double(), 0.0, 1))
    assert toy.precision == pytest.approx([np.exp(3)] * 2) and toy.mean == pytest.approx([2.0, 2.0])


def test_deterministic_tensors_are_averaged_by_weight() -> None:
    """Sites that do not change leave the Gaussian weights as they are."""
    facts, zero = replace(Conjugate(pvi).facts(), layout=Layout({"b": (1,)}, {"w": (1,)}, 0)), torch.zeros(1).double()
    reports = [
        Report(client, zero[:0], weight, 0.5, 1, 1, {"precision": zero, "shift": zero, "deterministic": zero + number})
        for client, (weight, number) in enumerate([(0.25, 1.0), (0.75, 5.0)])
    ]
    model, _ = pvi.server(torch.tensor([9.0, 0.5, -1.0]).double(), reports, {}, facts, pvi.Settings())
    assert model.tolist() == pytest.approx([4.0, 0.5, -1.0])


def test_with_one_client_the_cavity_is_the_prior() -> None:
    toy = Conjugate(pvi, pvi.Settings(damping=0.7), TOY_G[:1], initial=(0.5, 30.0), sizes=(100,))
    for mean, log_variance in [(2.0, -3.0), (-1.0, -5.0), (0.2, -1.0)]:
        cavity = toy.local(0).prior
        assert cavity is not None
        assert torch.allclose(cavity.precision, torch.ones(2).double())
        assert torch.allclose(cavity.shift, torch.zeros(2).double(), atol=1e-12)
        found = torch.tensor([mean, mean, log_variance, log_variance]).double()
        toy.round(trained=lambda client, found=found: Trained(found, 0.0, 1))  # type: ignore[misc]


def test_with_one_client_a_network_trains_as_in_plain_variational_inference() -> None:
    """The whole engine; deterministic biases are the client's."""
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(30, 4)).astype(np.float32), generator.integers(0, 3, 30)
    inputs = Inputs(features, labels, features, labels, 3, np.arange(30), np.array([0, 30]))
    posterior = PosteriorSettings("variational", 0.2, 0.5, -3.0, (-8.0, 8.0), "project", "dense")
    fixed = (3, 1, 1.0, 2, "data", Training(3, 8, 0.05, 0.9, 0.0), 9, 1, None, posterior, "none", "exact")
    settings = CellSettings(*fixed, network={"name": "mlp", "sizes": [5]})  # type: ignore[arg-type]
    states: dict[int, object] = {}
    work = Work(settings, inputs, "cpu", Chosen(pvi, pvi.Settings()), lambda client, _: states.get(client, {}))  # type: ignore[arg-type,return-value]
    federation = Federation(work, 10)
    executor = type("Here", (), {"run": staticmethod(lambda sent, tasks: [work.train(sent, each) for each in tasks])})()
    sent, plain = federation.initial(), work.initial.clone()
    assert work.layout.deterministic.stop > 0
    for round_ in (1, 2):
        federation.is_evaluated = lambda round_: False  # type: ignore[method-assign]
        outcome = federation.round(sent, round_, executor)
        sent = outcome.server
        states |= outcome.clients
        given = torch.from_numpy(features), torch.from_numpy(labels)
        plain = client_update(work.network, plain, *given, settings, round_, 0).vector
        torch.testing.assert_close(sent.model, plain, rtol=1e-4, atol=1e-5)
    assert (plain - work.initial).abs().max() > 0.05
