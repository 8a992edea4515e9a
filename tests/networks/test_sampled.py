"""A Gaussian posterior over all weights, whose network is trained as plain numbers."""

import math

import pytest
import torch
import torch.nn.functional as F

from bflp import networks
from bflp.networks.posterior import Posterior
from bflp.networks.sampled import SampledPosterior
from tests.oracles import own_network


def sampled(spec: dict[str, object], shape: tuple[int, ...], posterior: Posterior) -> SampledPosterior:
    return SampledPosterior(networks.build(spec, shape, 3, "none", posterior, "cpu"))


def test_every_weight_has_a_mean_that_starts_as_in_the_inner_network() -> None:
    network = sampled({"name": "lenet"}, (1, 16, 16), Posterior())
    layout, inner = network.layout, network.inner.layout
    assert (layout.deterministic, layout.means) == (slice(0, 0), slice(0, inner.size))
    assert layout.tensors["conv1.weight.mean"] == inner.tensors["conv1.weight"]
    vector = layout.initial_vector(-9.0, torch.Generator().manual_seed(0))
    assert torch.equal(vector[layout.means], inner.initial_vector(0.0, torch.Generator().manual_seed(0)))
    assert ((vector[layout.log_variances] + 9.0).abs() < 0.006).all()
    assert sampled({"file": own_network.__file__}, (1, 8, 8), Posterior()).layout.noise_size == 4 * 4 * 4  # of dropout
    with pytest.raises(NotImplementedError):
        network.gradient(vector, vector, vector, None, 0.0, vector)
    with pytest.raises(ValueError, match="Gaussian weights of its own"):
        SampledPosterior(network)
    module = network.module(vector)
    assert torch.equal(module.state_dict()["conv1.weight"].flatten(), vector[:150])


@pytest.mark.parametrize("enforce", ["clamp", "project"])
def test_prediction_draws_weights_with_the_documented_noise(enforce: str) -> None:
    posterior = Posterior(bounds=(-3.0, 0.0), enforce=enforce)  # type: ignore[arg-type]
    network = sampled({"name": "mlp", "sizes": []}, (4,), posterior)
    generator = torch.Generator().manual_seed(1)
    vector = torch.randn(30, generator=generator, dtype=torch.float64)
    vector[15:] -= 3.0
    images = torch.rand(6, 4, generator=generator, dtype=torch.float64)
    found = network.predict(vector, images, 4, torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(2)
    used = vector[15:].clamp(-3.0, 0.0) if enforce == "clamp" else vector[15:]
    logs = []
    for _ in range(4):
        theta = vector[:15] + (used / 2).exp() * torch.empty(15, dtype=torch.float64).normal_(generator=generator)
        logs.append(F.linear(images, theta[:12].view(3, 4), theta[12:]).log_softmax(1))
    expected = torch.stack(logs)
    torch.testing.assert_close(found[0], expected.exp().mean(0))
    torch.testing.assert_close(found[1], -(expected.exp() * expected).sum(2).mean(0))


def test_mean_probability_is_the_integral_over_the_weights() -> None:
    """Two labels' logit difference is normal, so that a logistic function is integrated over it."""
    network = SampledPosterior(networks.build({"name": "mlp", "sizes": []}, (1,), 2, "none", Posterior(), "cpu"))
    vector = torch.tensor([0.8, -0.3, 0.1, 0.2, *map(math.log, (0.5, 0.25, 0.1, 0.2))])
    probabilities, _ = network.predict(vector, torch.tensor([[2.0]]), 5_000, torch.Generator().manual_seed(0))
    mean, variance = 2 * (0.8 + 0.3) + 0.1 - 0.2, 4 * 0.75 + 0.3
    grid = torch.linspace(-12.0, 12.0, 20_001, dtype=torch.float64)
    density = torch.exp(-grid.square() / 2) / math.sqrt(2 * math.pi)
    integral = torch.trapezoid(density * torch.sigmoid(mean + math.sqrt(variance) * grid), grid)
    assert probabilities[0, 0].item() == pytest.approx(integral.item(), abs=4 * 0.3 / math.sqrt(5_000))
