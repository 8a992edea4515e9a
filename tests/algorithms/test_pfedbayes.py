"""pFedBayes: the turns of the two posteriors, against divergences by hand and by torch, and where rounds rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithms.conjugate import cell, quadratic, variational
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from bflp.algorithms import pfedbayes
from bflp.engine.client import client_update
from bflp.engine.local import Facts, Local, State, Trained
from bflp.engine.settings import CellSettings, Training
from bflp.networks.layout import Layout
from bflp.settings.schema import load

ROOT = Path(__file__).resolve().parents[2]
LAYOUT = Layout({"b": (1,)}, {"w": (1,)}, 0)  # vectors are b, mean, log variance
SGD, ADAM = {"name": "sgd"}, {"name": "adam", "betas": (0.9, 0.999), "epsilon": 1e-8}


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Conjugate:
    """The mean loss (b - 3)^2 / 2 + curvature E_q (w - centre)^2 / 2 for any data."""

    layout = LAYOUT

    def __init__(self, curvature: float, centre: float) -> None:
        self.curvature, self.centre = curvature, centre

    def gradient(self, vector: Tensor, images: Any, labels: Any, noise: Any, kl_weight: float, out: Tensor) -> Tensor:
        assert kl_weight == 0  # the divergence is from another prior than the cell's
        b, mean, log_variance = vector
        variance = log_variance.exp()
        out[0], out[1], out[2] = b - 3, self.curvature * (mean - self.centre), self.curvature * variance / 2
        return ((b - 3) ** 2 + self.curvature * ((mean - self.centre) ** 2 + variance)) / 2


def facts(settings: CellSettings, samples: int, round_: int = 1) -> Facts:
    return Facts(LAYOUT, settings.training, 3, samples, 1 / 3, round_, (0.0, 1.0), vector(0, 0, 0), settings)


def local(model: Tensor, settings: CellSettings, samples: int, client: State | None = None, **own: Any) -> Local:
    return pfedbayes.local(model, {}, client or {}, facts(settings, samples), pfedbayes.Settings(**own))


def trained(
    network: Any, model: Tensor, settings: CellSettings, samples: int, client: State | None = None, **own: Any
) -> tuple[Trained, Local]:
    given = local(model, settings, samples, client, **own)
    data = torch.zeros(samples, 1), torch.zeros(samples, dtype=torch.int64)
    assert given.start is not None
    return client_update(network, given.start, *data, settings, 1, 0, None, given), given


def turned(model: Tensor, own: Tensor, zeta: float, samples: int) -> Tensor:
    """What one step of w_k with rate 1 takes away: the gradient."""
    settings = cell(Training(1, 1, 0.1, 0.0, 0.0), "variational")
    given = local(model, settings, samples, zeta=zeta, steps=1, learning_rate=1.0)
    assert given.after_step is not None and given.sent is not None
    given.after_step(own)
    return model - given.sent


def test_the_gradient_in_the_global_model() -> None:
    """zeta KL(q || w) for q = N(0.8, 0.2), w = N(0, 1), zeta = 10: -8 by the mean, 0.8 by the variance, which is 1."""
    own = vector(7, 0.8, np.log(0.2))
    assert turned(vector(7, 0, 0), own, 10, 1)[1:].tolist() == pytest.approx([-8, 0.8])
    assert turned(vector(7, 0, 0), own, 10, 4)[1:].tolist() == pytest.approx([-2, 0.2])


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_that_of_torchs_divergence(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    model, own = (torch.randn(3, generator=generator, dtype=torch.float64) for _ in range(2))
    w = model.clone().requires_grad_()
    q = Normal(own[1], (own[2] / 2).exp())
    (3.0 / 2 * kl_divergence(q, Normal(w[1], (w[2] / 2).exp()))).backward()  # type: ignore[no-untyped-call]
    assert w.grad is not None
    assert turned(model, own, 3.0, 2)[1:].tolist() == pytest.approx(w.grad[1:].tolist())


def test_the_clients_optimum_is_the_tempered_posterior() -> None:
    """Curvature 40 at 1, w = N(0, 1), zeta = 10: q = N(0.8, 0.2); and training goes there."""
    settings = cell(Training(400, 4, 0.1, 0.0, 0.0), "variational")
    prior = local(vector(0, 0, 0), settings, 4).prior
    assert prior is not None
    found = variational(quadratic(vector(40), vector(1)), prior, 1 / 10)
    assert [float(found.shift / found.precision), float(1 / found.precision)] == pytest.approx([0.8, 0.2])
    reached, given = trained(Conjugate(40 / 4, 1), vector(0, 0, 0), settings, 4, learning_rate=1e-12)
    assert reached.vector.tolist() == pytest.approx([3, 0.8, np.log(0.2)], abs=1e-6)
    assert given.sent is not None
    assert given.sent.tolist() == pytest.approx([3, 0, 0], abs=1e-6)  # b goes with it


@pytest.mark.parametrize("optimiser", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("steps", [1, 3, 20])
def test_in_turns_by_an_optimiser_each(optimiser: dict[str, Any], steps: int) -> None:
    """Plain loops with torch's optimisers and divergences; 14 steps, so that with 20 the copy never moves."""
    settings = cell(Training(2, 1, 0.05, 0.9, 0.01), "variational", optimiser)
    model, kept = vector(1, 0.3, -1), {"means": vector(-0.5), "log_variances": vector(-2)}
    found, given = trained(Conjugate(2.0, 1.5), model, settings, 7, kept, zeta=4.0, steps=steps, learning_rate=0.02)
    q, w = (each.requires_grad_() for each in (vector(1, -0.5, -2), vector(1, 0.3, -1)))
    adam = optimiser["name"] == "adam"
    of_q, of_w = (
        torch.optim.Adam([each], rate, weight_decay=decay)
        if adam
        else torch.optim.SGD([each], rate, momentum=0.9, weight_decay=decay)
        for each, rate, decay in ((q, 0.05, 0.01), (w, 0.02, 0.0))
    )

    def divergence(q: Tensor, w: Tensor) -> Tensor:
        return 4 / 7 * kl_divergence(Normal(q[1], (q[2] / 2).exp()), Normal(w[1], (w[2] / 2).exp()))

    for step in range(1, 15):
        of_q.zero_grad()
        loss = (q[0] - 3) ** 2 / 2 + (q[1] - 1.5) ** 2 + q[2].exp()
        (loss + divergence(q, w.detach())).backward()  # type: ignore[no-untyped-call]
        of_q.step()
        if step % steps == 0:
            of_w.zero_grad()
            divergence(q.detach(), w).backward()  # type: ignore[no-untyped-call]
            of_w.step()
    assert found.vector.tolist() == pytest.approx(q.tolist(), rel=1e-9)
    assert given.sent is not None
    assert given.sent.tolist() == pytest.approx([q[0].item(), *w.tolist()[1:]], rel=1e-9)
    assert (given.sent[1:] == model[1:]).all() == (steps == 20)


def test_a_client_keeps_its_posterior_alone() -> None:
    settings = cell(Training(1, 1, 0.1, 0.0, 0.0), "variational")
    model = vector(1, 2, 3)
    own = Trained(vector(10, 20, 30), 0.0, 1)
    message, state = pfedbayes.report(model, own, {}, {}, facts(settings, 4), pfedbayes.Settings())
    assert message == {}
    first, later = local(model, settings, 4).start, local(model, settings, 4, state).start
    assert first is not None and later is not None
    assert first.tolist() == [1, 2, 3]
    assert later.tolist() == [1, 20, 30]


@pytest.mark.parametrize("enforce", ["clamp", "project"])
def test_log_variances_of_the_copy_stay_within_their_bounds(enforce: Any) -> None:
    settings = cell(Training(1, 1, 0.1, 0.0, 0.0), "variational")
    assert settings.posterior is not None
    posterior = settings.posterior.__class__(**{**vars(settings.posterior), "enforce": enforce, "bounds": (-3.0, -1.0)})
    settings = settings.__class__(**{**vars(settings), "posterior": posterior})
    given = local(vector(0, 0, -1.5), settings, 1, steps=1, learning_rate=1.0)
    assert given.after_step is not None and given.sent is not None and given.prior is not None
    for _ in range(2):
        given.after_step(vector(0, 0, 5))  # a wide posterior, used as one of log variance -1: the copy widens
    assert given.prior.precision.item() == pytest.approx(np.exp(1.0))
    # By hand, 10 / 2 (exp(1.5 - 1) - 1) in the first step; beyond a bound nothing moves any more.
    assert given.sent[2].item() == (-1 if enforce == "project" else pytest.approx(-1.5 + 5 * (np.exp(0.5) - 1)))


@pytest.mark.parametrize("bound", [-3.0, -1.0])
def test_a_copy_at_a_bound_gets_no_gradient_where_log_variances_are_clamped(bound: float) -> None:
    settings = cell(Training(1, 1, 0.1, 0.0, 0.0), "variational")
    assert settings.posterior is not None
    posterior = replace(settings.posterior, bounds=(-3.0, -1.0))
    given = local(vector(0, 0, bound), replace(settings, posterior=posterior), 1, steps=1, learning_rate=1.0)
    assert given.after_step is not None and given.sent is not None
    given.after_step(vector(0, 1, -2))
    assert given.sent[1].item() != 0 and given.sent[2].item() == bound


def test_rounds_rest_where_the_model_has_the_mixtures_moments() -> None:
    """Started at the optimum with the matching states, each copy moves, and their mean does not.

    w = N(m, v), q_k = w * likelihood_k^(1 / zeta), and m, v the moments of the mixture of all q_k: by going to and fro.
    """
    curvatures, centres, zeta, rate = np.array([4.0, 30, 8]), np.array([-1, 0.5, 3]), 2.0, 1e-5
    mean, variance = 0.0, 1.0
    for _ in range(2000):
        precisions = 1 / variance + curvatures / zeta
        means = (mean / variance + curvatures * centres / zeta) / precisions
        mean, variance = means.mean(), (1 / precisions + (means - means.mean()) ** 2).mean()
    settings = cell(Training(10, 1, 0.01, 0.0, 0.0), "variational")
    model, moved = vector(3, mean, np.log(variance)), []
    for k in range(3):
        kept = {"means": vector(means[k]), "log_variances": vector(-np.log(precisions[k]))}
        network = Conjugate(curvatures[k], centres[k])
        own, given = trained(network, model, settings, 1, kept, zeta=zeta, steps=5, learning_rate=rate)
        assert own.vector.tolist() == pytest.approx([3, means[k], -np.log(precisions[k])], abs=1e-4)
        assert given.sent is not None
        moved.append((given.sent - model)[1:] / rate)
    assert torch.stack(moved).abs().min() > 0.05
    assert torch.stack(moved).mean(0).tolist() == pytest.approx([0, 0], abs=1e-3)


def test_its_rule_is_aalv_unless_another_is_named() -> None:
    settings = load([ROOT / "config.yaml", ROOT / "examples/methods/pfedbayes.yaml"])
    assert settings.method("PFEDBAYES").aggregators == ("AALV",)
