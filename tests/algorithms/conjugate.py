"""Federations whose clients solve their problems exactly, in float64; an algorithm's own functions do all the rest.

A client's likelihood is given as what variational inference needs of it: the expected gradient and curvature of its
sum loss under N(mean, variance). Toy G: quadratic losses A_k (w - c_k)^2 / 2 of two weights, prior N(0, 1).
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bflp.engine.local import Chosen, Facts, Gaussian, Local, Report, State, Trained
from bflp.engine.settings import CellSettings, PosteriorSettings, Training
from bflp.networks.layout import Layout

Likelihood = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

CURVATURES = torch.tensor([[4.0, 10.0], [30.0, 1.0], [8.0, 25.0]], dtype=torch.float64)
CENTRES = torch.tensor([[-1.0, 0.2], [0.5, -2.0], [3.0, 1.0]], dtype=torch.float64)
SIZES = (100, 300, 600)
EXACT_PRECISION, EXACT_MEAN = (43.0, 37.0), (35 / 43, 25 / 37)


def quadratic(curvature: Tensor, centre: Tensor) -> Likelihood:
    return lambda mean, variance: (curvature * (mean - centre), curvature + 0 * mean)


TOY_G = [quadratic(*pair) for pair in zip(CURVATURES, CENTRES, strict=True)]


def logistic_clients() -> list[Likelihood]:
    """60 points of a logistic regression of one weight, a third for each client, sorted by input."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=60) * 1.5
    labels = np.where(generator.random(60) < 1 / (1 + np.exp(-1.2 * inputs)), 1.0, -1.0)
    order = np.argsort(inputs)
    return [logistic(inputs[rows] * labels[rows]) for rows in np.split(order, 3)]


def logistic(signed: Any) -> Likelihood:
    """signed: input times label. Expectations by Gauss-Hermite quadrature."""
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(60))
    points = torch.as_tensor(signed)[:, None]

    def expected(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        wrong = torch.sigmoid(-points * (mean + variance.sqrt() * nodes))
        average = weights / weights.sum()
        gradient, curvature = -points * wrong, points**2 * wrong * (1 - wrong)
        return (gradient @ average).sum().reshape(1), (curvature @ average).sum().reshape(1)

    return expected


def logistic_together() -> Gaussian:
    """Variational inference on the three clients' data at once, prior N(0, 1)."""

    def likelihood(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        gradients, curvatures = zip(*(each(mean, variance) for each in logistic_clients()), strict=True)
        return torch.stack(gradients).sum(0), torch.stack(curvatures).sum(0)

    return variational(likelihood, Gaussian(torch.ones(1).double(), torch.zeros(1).double()))


def variational(likelihood: Likelihood, prior: Gaussian, scale: float = 1.0) -> Gaussian:
    """The minimum of scale * E_q[sum loss] + KL(q || prior), by Newton's method."""
    precision, mean = prior.precision.abs() + 1, prior.shift * 0
    for _ in range(300):
        gradient, curvature = likelihood(mean, 1 / precision)
        precision = prior.precision + scale * curvature
        assert (precision > 0).all(), "this client's problem has no minimum"
        step = (scale * gradient + prior.precision * mean - prior.shift) / precision
        mean = mean - step
        if step.abs().max() < 1e-13:
            break
    return Gaussian(precision, precision * mean)


class Conjugate:
    """Rounds of an algorithm's module. initial, prior: mean and precision of the first model and of the prior."""

    def __init__(
        self,
        module: ModuleType,
        settings: Any = None,
        likelihoods: Sequence[Likelihood] = TOY_G,
        kind: str = "variational",
        initial: tuple[float, float] = (0.0, 1.0),
        temperature: float = 1.0,
        weights: int = 2,
        sizes: Sequence[int] = SIZES,
        prior: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self.chosen = Chosen(module, settings or module.Settings())
        self.likelihoods, self.sizes, self.temperature, self.prior = likelihoods, sizes, temperature, prior
        shapes = {"w": (weights,)}
        self.layout = Layout(shapes, {}, 0) if kind == "none" else Layout({}, shapes, 0)
        self.initial = torch.tensor([initial[0], -np.log(initial[1])], dtype=torch.float64).repeat_interleave(weights)
        self.initial = self.initial[: self.layout.size]
        self.settings = cell(Training(5, 10, 0.1, 0.0, 0.0), kind, {"name": "ivon", "temperature": temperature})
        self.model, self.server = self.initial, {}  # type: Tensor, State
        self.states: dict[int, State] = {}
        self.done = 0

    def facts(self, client: int | None = None) -> Facts:
        total = sum(self.sizes)
        samples = total if client is None else self.sizes[client]
        training, share = self.settings.training, samples / total
        clients = len(self.likelihoods)
        return Facts(self.layout, training, clients, samples, share, self.done, self.prior, self.initial, self.settings)

    def solved(self, client: int, local: Local) -> Trained:
        """What the algorithm's `local` asks for, divided by its weight on the divergence."""
        zero, scale = torch.zeros_like(self.model[self.layout.means]), 1 / (self.temperature * local.kl_weight)
        base = local.prior or Gaussian(zero + 1, zero)
        constant, curvature = (zero if part is None else part for part in (local.constant, local.curvature))
        per_sample = self.sizes[client] * scale
        prior = Gaussian(base.precision + per_sample * curvature, base.shift - per_sample * constant)
        found = variational(self.likelihoods[client], prior, scale)
        return Trained(torch.cat([found.shift / found.precision, -found.precision.log()]), 0.0, 1)

    def local(self, client: int) -> Local:
        return self.chosen.local(self.model, self.server, self.states.get(client, {}), self.facts(client))

    def round(self, drawn: Sequence[int] | None = None, trained: Callable[[int], Trained] | None = None) -> None:
        """One round of the clients `drawn`, all by default; trained: what they reach, the exact solution by default."""
        self.done += 1
        clients = range(len(self.likelihoods)) if drawn is None else drawn
        total, reports, states = sum(self.sizes[client] for client in clients), [], {}
        for client in clients:
            facts, before = self.facts(client), self.states.get(client, {})
            found = trained(client) if trained else self.solved(client, self.local(client))
            message, states[client] = self.chosen.report(self.model, found, self.server, before, facts)
            weight = facts.samples / total
            reports.append(Report(client, found.vector, weight, facts.share, facts.samples, 1, message))
        self.model, self.server = self.chosen.server(self.model, reports, self.server, self.facts())
        self.states |= states

    def rounds(self, number: int) -> "Conjugate":
        for _ in range(number):
            self.round()
        return self

    @property
    def mean(self) -> list[float]:
        return self.model[self.layout.means].tolist()  # type: ignore[no-any-return]

    @property
    def precision(self) -> list[float]:
        return (-self.model[self.layout.log_variances]).exp().tolist()  # type: ignore[no-any-return]


class Quadratic:
    """A network, as far as training asks for it, whose loss is sum h (w - c)^2 / 2 for any data. h, c: [P]."""

    def __init__(self, curvature: Tensor, centre: Tensor, samples: int) -> None:
        self.curvature, self.centre, self.layout = curvature, centre, Layout({"w": tuple(centre.shape)}, {}, 0)
        self.data = torch.zeros(samples, 1), torch.zeros(samples, dtype=torch.int64)

    def gradient(
        self, vector: Tensor, images: Tensor, labels: Tensor, noise: Tensor | None, kl_weight: float, out: Tensor
    ) -> Tensor:
        out.copy_(self.curvature * (vector - self.centre))
        return (self.curvature * (vector - self.centre).square()).sum() / 2


class Linear:
    """A linear model with Gaussian noise, mean loss sum (y - x w)^2 / (2 variance n). rows: x and y [n, P + 1]."""

    def __init__(self, rows: Any, variance: float = 1.0) -> None:
        self.variance, self.data = variance, (torch.from_numpy(rows), torch.zeros(len(rows), dtype=torch.int64))
        self.layout = Layout({"w": (rows.shape[1] - 1,)}, {}, 0)

    def gradient(
        self, vector: Tensor, images: Tensor, labels: Tensor, noise: Tensor | None, kl_weight: float, out: Tensor
    ) -> Tensor:
        inputs, error = images[:, :-1], images[:, :-1] @ vector - images[:, -1]
        out.copy_((inputs * error[:, None]).mean(0) / self.variance)
        return error.square().mean() / (2 * self.variance)


def cell(training: Training, kind: str = "none", optimiser: Any = None, **prior: float) -> CellSettings:
    """Settings of a cell for local training. prior: mean and sd, standard normal by default."""
    posterior = PosteriorSettings(
        kind, prior.get("mean", 0.0), prior.get("sd", 1.0), -9.0, (-30.0, 30.0), "clamp", "all"
    )
    fixed = (7, 1, 1.0, 9, "data", training, 1, 1, None, None if kind == "none" else posterior, "none", "exact")
    return CellSettings(*fixed, optimiser=optimiser or {"name": "sgd"})  # type: ignore[arg-type]


def ivon_cell(training: Training, sd: float = 1.0, **chosen: Any) -> CellSettings:
    """The same for IVON. chosen: what differs from its defaults."""
    optimiser = {"betas": (0.9, 0.99999), "initial_hessian": 1.0, "temperature": 1.0, "rescale": True, "carry": True}
    return cell(training, "ivon", {"name": "ivon", **optimiser, **chosen}, sd=sd)


def train(
    kind: ModuleType, network: Any, mean: Tensor, log_variance: Tensor, settings: CellSettings, **given: Any
) -> Tensor:
    """The vector [2 P] that a way to a posterior gives. given: round_ and local, other than 1 and nothing."""
    found: Tensor = kind.train(
        network,
        mean,
        log_variance,
        *network.data,
        settings,
        given.get("round_", 1),
        0,
        None,
        given.get("local", Local()),
    ).vector
    return found
