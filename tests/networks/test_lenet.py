"""The hand-written loss, gradient and predictions against standard layers, autograd and sampling."""

import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Normal
from torch.distributions import kl_divergence as torch_kl_divergence

from bflp.networks.lenet import LeNet, LeNetLayout
from bflp.networks.posterior import Posterior
from tests.oracles.plain import LeNet as PlainLeNet
from tests.oracles.plain import VariationalLinear, kl_divergence, plain_gradient

SHAPES = [(1, 28, 28), (3, 32, 32), (2, 17, 19), (1, 16, 33)]
KL_WEIGHT = 1e-4


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small matrices on two threads wait for each other, on a busy machine for long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Case:
    """A network with random parameters, log variances beyond, at and between the bounds, and a batch."""

    def __init__(
        self,
        shape: tuple[int, int, int] = (1, 28, 28),
        variational: bool = True,
        batch: int = 7,
        labels: int = 12,
        dtype: torch.dtype = torch.float32,
        posterior: Posterior | None = None,
    ) -> None:
        generator = torch.Generator().manual_seed(batch)
        self.layout = LeNetLayout(shape, labels, variational)
        self.posterior = posterior or Posterior(bounds=(-8.0, 1.0))
        self.vector = self.layout.initial_vector(-6.0, generator).to(dtype)
        if variational:
            log_variances = self.vector[self.layout.log_variances]
            log_variances.uniform_(-12.0, 2.0, generator=generator)
            log_variances[0::5], log_variances[1::5] = self.posterior.bounds
            log_variances[:50] = 10.0
        self.images = torch.rand(batch, *shape, generator=generator)
        self.labels = torch.randint(labels, (batch,), generator=generator)
        noise = torch.randn(batch, self.layout.noise_size, generator=generator).to(dtype)
        self.noise = noise if variational else None
        self.network = LeNet(self.layout, self.posterior, "cpu")

    def gradient(self, kl_weight: float = KL_WEIGHT) -> tuple[Tensor, Tensor]:
        out = torch.full_like(self.vector, torch.nan)
        loss = self.network.gradient(self.vector, self.images, self.labels, self.noise, kl_weight, out)
        return loss, out

    def plain_gradient(self, kl_weight: float = KL_WEIGHT) -> tuple[Tensor, Tensor]:
        batch = self.images, self.labels, self.noise
        return plain_gradient(self.layout, self.vector, *batch, kl_weight, self.posterior)

    def assert_gradients_agree(self, tolerance: float) -> None:
        loss, gradient = self.gradient()
        plain_loss, plain = self.plain_gradient()
        assert loss.shape == ()
        assert loss.item() == pytest.approx(plain_loss.item(), rel=tolerance)
        expected = self.layout.views(plain)
        for name, values in self.layout.views(gradient).items():
            error = (values - expected[name]).norm().item()
            assert error <= tolerance * expected[name].norm().item(), name


@pytest.mark.parametrize("variational", [True, False])
@pytest.mark.parametrize("batch", [64, 7, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradient(shape: tuple[int, int, int], batch: int, variational: bool) -> None:
    Case(shape, variational, batch, dtype=torch.float64).assert_gradients_agree(1e-12)
    # looser than rounding: where two responses all but tie, another processor may let the other one win
    Case(shape, variational, batch).assert_gradients_agree(1e-3)


@pytest.mark.parametrize("enforce", ["clamp", "project"])
def test_gradient_with_another_prior(enforce: str) -> None:
    posterior = Posterior(0.3, 0.5, (-8.0, 1.0), enforce)  # type: ignore[arg-type]
    Case(posterior=posterior, dtype=torch.float64).assert_gradients_agree(1e-12)
    Case(posterior=posterior).assert_gradients_agree(1e-3)


def test_clamping_passes_no_gradient_at_the_bounds_and_projection_does() -> None:
    for enforce, passes in (("clamp", False), ("project", True)):
        case = Case(posterior=Posterior(bounds=(-8.0, 1.0), enforce=enforce))  # type: ignore[arg-type]
        log_variances = case.vector[case.layout.log_variances]
        gradient = case.gradient()[1][case.layout.log_variances]
        assert bool((gradient[(log_variances <= -8.0) | (log_variances >= 1.0)] != 0).any()) == passes
        assert torch.count_nonzero(gradient[(log_variances > -8.0) & (log_variances < 1.0)]) > 1000


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_gradient_of_constant_images_goes_to_one_of_equal_responses(value: float) -> None:
    for variational in (True, False):
        case = Case(variational=variational, dtype=torch.float64)
        case.images.fill_(value)
        case.assert_gradients_agree(1e-12)


def test_gradient_goes_to_the_first_of_equal_responses_to_different_patches() -> None:
    case = Case(dtype=torch.float64)
    named = case.layout.views(case.vector)
    named["conv1.weight"].zero_()
    named["conv1.bias"].fill_(1.0)
    weight = named["conv2.weight"]
    weight.copy_((1024.0 * weight).round() / 1024.0)  # exact sums: all responses tie
    case.assert_gradients_agree(1e-12)
    assert case.layout.views(case.gradient()[1])["conv1.weight"].norm() > 0


def test_calls_do_not_depend_on_what_was_computed_before() -> None:
    case, other = Case(batch=64), Case(batch=7)
    first_loss, first = case.gradient()
    other.network = case.network
    other.gradient()
    other.vector = other.vector.double()
    other.noise = torch.zeros_like(other.vector[: other.layout.noise_size]).expand(7, -1)
    other.gradient()
    case.network.predict(case.vector.clone(), other.images, 2, torch.Generator().manual_seed(0))
    for network in (case.network, LeNet(case.layout, case.posterior, "cpu")):
        case.network = network
        loss, gradient = case.gradient()
        assert torch.equal(loss, first_loss)
        assert torch.equal(gradient, first)


def test_changed_parameters_are_seen() -> None:
    case = Case(dtype=torch.float64)
    case.gradient()
    case.vector.mul_(0.9)
    case.assert_gradients_agree(1e-12)
    case.vector = case.vector.clone().add_(0.01)
    case.assert_gradients_agree(1e-12)
    case.vector.data = case.vector + 0.01  # the same tensor, elsewhere
    case.assert_gradients_agree(1e-12)


def test_a_variational_network_needs_noise() -> None:
    case = Case()
    case.noise = None
    with pytest.raises(ValueError, match="needs noise"):
        case.gradient()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"enforce": "clip"}, "clip"),
        ({"prior_standard_deviation": 0.0}, "positive"),
        ({"prior_standard_deviation": math.nan}, "positive"),
        ({"bounds": (1.0, -1.0)}, "bounds"),
        ({"bounds": (1.0, 1.0)}, "bounds"),
    ],
)
def test_senseless_posteriors_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Posterior(**settings)  # type: ignore[arg-type]


def test_divergence_against_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(1000, generator=generator, dtype=torch.float64)
    log_variance = torch.empty(1000, dtype=torch.float64).uniform_(-8.0, 8.0, generator=generator)
    prior = Normal(torch.tensor(0.3, dtype=torch.float64), 0.7)
    expected = torch_kl_divergence(Normal(mean, (0.5 * log_variance).exp()), prior).sum()
    assert kl_divergence(mean, log_variance, 0.3, 0.7).item() == pytest.approx(expected.item(), rel=1e-12)
    at_the_prior = torch.full((5,), 2.0 * math.log(0.7))
    assert kl_divergence(torch.full((5,), 0.3), at_the_prior, 0.3, 0.7).item() == pytest.approx(0.0, abs=1e-6)


def test_loss_contains_the_divergence() -> None:
    posterior = Posterior(0.3, 0.7, (-8.0, 1.0))
    case = Case(dtype=torch.float64, posterior=posterior)
    mean = case.vector[case.layout.means]
    deviation = (0.5 * case.vector[case.layout.log_variances].clamp(-8.0, 1.0)).exp()
    prior = Normal(torch.tensor(0.3, dtype=torch.float64), 0.7)
    expected = torch_kl_divergence(Normal(mean, deviation), prior).sum()
    added = case.gradient(kl_weight=2.0)[0] - case.gradient(kl_weight=0.0)[0]
    assert added.item() == pytest.approx(2.0 * expected.item(), rel=1e-10)


@pytest.mark.parametrize("enforce", ["clamp", "project"])
def test_without_divergence_the_gradient_is_that_of_the_data(enforce: str) -> None:
    cases = [Case(posterior=Posterior(*prior, (-8.0, 1.0), enforce)) for prior in ((0.0, 1.0), (0.3, 0.1))]  # type: ignore[arg-type]
    (loss, gradient), (same_loss, same_gradient) = (case.gradient(kl_weight=0.0) for case in cases)
    assert torch.equal(loss, same_loss)
    assert torch.equal(gradient, same_gradient)
    case = Case(posterior=cases[0].posterior, dtype=torch.float64)
    torch.testing.assert_close(case.gradient(kl_weight=0.0)[1], case.plain_gradient(kl_weight=0.0)[1])


def test_local_reparameterisation_has_the_moments_of_sampled_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    samples, inputs, outputs = 20_000, 6, 3
    layer = VariationalLinear(inputs, outputs, Posterior()).double()
    with torch.no_grad():
        layer.mean.normal_(generator=generator)
        layer.log_variance.uniform_(-3.0, 1.0, generator=generator)
        layer.bias.normal_(generator=generator)
        x = torch.randn(inputs, dtype=torch.float64, generator=generator)
        noise = torch.randn(samples, outputs, dtype=torch.float64, generator=generator)
        local = layer(x.expand(samples, -1), noise)
        drawn = torch.randn(samples, outputs, inputs, dtype=torch.float64, generator=generator)
        sampled = (layer.mean + (0.5 * layer.log_variance).exp() * drawn) @ x + layer.bias
    error = (local.var(0) / samples + sampled.var(0) / samples).sqrt()
    assert ((local.mean(0) - sampled.mean(0)).abs() < 4.0 * error).all()
    ratio = local.var(0) / sampled.var(0)  # the relative standard error of a normal's variance is sqrt(2 / n)
    assert ((ratio - 1.0).abs() < 4.0 * math.sqrt(4.0 / samples)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_features(shape: tuple[int, int, int]) -> None:
    case = Case(shape, batch=230, dtype=torch.float64)
    oracle = PlainLeNet(case.layout, case.posterior)
    oracle.load_vector(case.layout, case.vector)
    features = case.network.features(case.vector, case.images)
    assert features.shape == (230, case.layout.feature_size)
    torch.testing.assert_close(features, oracle.features(case.images.double()))


def test_deterministic_prediction() -> None:
    case = Case(variational=False, batch=130, dtype=torch.float64)
    oracle = PlainLeNet(case.layout, case.posterior)
    oracle.load_vector(case.layout, case.vector)
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    probabilities, entropies = case.network.predict(case.vector, case.images, 10, generator)
    expected = torch.softmax(oracle(case.images.double()), dim=1).detach()
    torch.testing.assert_close(probabilities, expected)
    torch.testing.assert_close(entropies, -(expected * expected.log()).sum(dim=1))
    assert torch.equal(generator.get_state(), before)


def test_variational_prediction_with_the_documented_noise() -> None:
    case, samples = Case(batch=130, dtype=torch.float64), 3
    oracle = PlainLeNet(case.layout, case.posterior)
    oracle.load_vector(case.layout, case.vector)
    predicted = case.network.predict(case.vector, case.images, samples, torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(5)
    logs = []
    for _ in range(samples):
        noise = torch.empty(case.layout.noise_size, 130, dtype=torch.float64).normal_(generator=generator).t()
        logs.append(F.log_softmax(oracle(case.images.double(), noise), dim=1).detach())
    expected = torch.stack(logs)
    torch.testing.assert_close(predicted[0], expected.exp().mean(dim=0))
    torch.testing.assert_close(predicted[1], -(expected.exp() * expected).sum(dim=2).mean(dim=0))


def test_variational_prediction_has_the_distribution_of_sampled_weights() -> None:
    """For a single image the local form, one draw per unit and image, has the same distribution."""
    case, samples = Case((1, 16, 16), batch=1, labels=3, posterior=Posterior()), 4000
    case.vector[case.layout.log_variances] = -2.0
    generator = torch.Generator().manual_seed(0)
    probabilities, entropies = case.network.predict(case.vector, case.images, samples, generator)

    named = case.layout.views(case.vector)
    generator = torch.Generator().manual_seed(1)
    x = case.network.features(case.vector, case.images).expand(samples, -1).unsqueeze(2)
    for layer in ("dense1", "dense2", "dense3"):
        mean, bias = named[f"{layer}.mean"], named[f"{layer}.bias"]
        weights = mean + math.exp(-1.0) * torch.randn(samples, *mean.shape, generator=generator)
        x = weights @ x + bias.unsqueeze(1)
        x = x.relu() if layer != "dense3" else x
    logs = F.log_softmax(x.squeeze(2), dim=1)
    for predicted, drawn in (
        (probabilities[0], logs.exp()),
        (entropies, -(logs.exp() * logs).sum(dim=1, keepdim=True)),
    ):
        error = drawn.std(dim=0) * math.sqrt(2.0 / samples)
        assert ((predicted - drawn.mean(dim=0)).abs() < 4.0 * error).all()


def test_predictions_repeat_and_are_distributions() -> None:
    case = Case(batch=33)
    first = case.network.predict(case.vector, case.images, 2, torch.Generator().manual_seed(0))
    second = case.network.predict(case.vector, case.images, 2, torch.Generator().manual_seed(0))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    torch.testing.assert_close(first[0].sum(dim=1), torch.ones(33))
    assert (first[1] >= 0).all()
    assert (first[1] <= math.log(12)).all()


def test_variance_of_an_output_has_a_floor() -> None:
    layer = VariationalLinear(2, 1, Posterior())
    noise = torch.ones(1, 1)
    assert layer(torch.zeros(1, 2), noise).item() == pytest.approx(1e-4)
