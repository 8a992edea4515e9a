"""Plain modules made Bayesian: against the hand-written LeNet, explicit variational layers, and sampled weights."""

import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal
from torch.distributions import kl_divergence as torch_kl_divergence

from bflp import networks
from bflp.engine.client import squared_gradients
from bflp.networks.layers import Dropout
from bflp.networks.plain import PlainNetwork, initial_module
from bflp.networks.posterior import Posterior
from tests.oracles import plain as oracle

Build = Callable[[], nn.Module]
PRIOR = Posterior(0.1, 0.7, (-8.0, 1.0))


def make(module: Build, shape: tuple[int, ...], variational: str, posterior: Posterior = PRIOR) -> PlainNetwork:
    return PlainNetwork("mine", module, shape, 3, variational, posterior, "cpu")


class Case:
    """A network of 3 labels with random parameters in float64, log variances also beyond the bounds, and a batch."""

    def __init__(self, network: networks.Network, batch: int = 5) -> None:
        generator = torch.Generator().manual_seed(1)
        self.network, self.layout = network, network.layout
        self.vector = self.layout.initial_vector(-2.0, generator).double()
        if self.layout.gaussian:
            log_variances = self.vector[self.layout.log_variances]
            log_variances.uniform_(-9.0, 1.5, generator=generator)
            log_variances[:2] = torch.tensor(network.posterior.bounds)
        self.images = torch.rand(batch, *network.input_shape, generator=generator).double()
        self.labels = torch.randint(network.labels, (batch,), generator=generator)
        self.noise = torch.randn(batch, self.layout.noise_size, generator=generator).double()

    def gradient(self, kl_weight: float = 1e-2) -> tuple[Tensor, Tensor]:
        out = torch.full_like(self.vector, torch.nan)
        loss = self.network.gradient(self.vector, self.images, self.labels, self.noise, kl_weight, out)
        assert loss.shape == ()
        assert not loss.requires_grad
        return loss, out


# Against the hand-written network


@pytest.mark.parametrize("variational", ["none", "dense"])
@pytest.mark.parametrize("spec", [{"file": oracle.__file__}, {"name": "lenet"}], ids=["file", "built in"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_lenet_as_a_plain_module_is_the_hand_written_one(
    shape: tuple[int, int, int], spec: dict[str, str], variational: str
) -> None:
    fast = networks.build({"name": "lenet"}, shape, 12, variational, PRIOR, "cpu")
    if "file" in spec:
        general = networks.build(spec, shape, 12, variational, PRIOR, "cpu")
    else:
        from bflp.networks.lenet import build

        general = PlainNetwork("lenet", partial(build, shape, 12), shape, 12, variational, PRIOR, "cpu")
    assert type(fast) is not type(general)
    # the same tensors in the same order, but for the places of biases
    case, other = Case(fast, batch=16), Case(general, batch=16)
    layers, tensors = ("conv1", "conv2", "dense1", "dense2", "dense3"), fast.layout.tensors
    order = [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    order += [f"{layer}.{kind}" for kind in ("mean", "log_variance") for layer in layers]
    order = [name for name in order if name in tensors]
    assert len(order) == len(tensors)
    parts = fast.layout.views(case.vector)
    other.vector = torch.cat([parts[name].flatten() for name in order])
    other.images, other.labels, other.noise = case.images, case.labels, case.noise
    (loss, gradient), (other_loss, other_gradient) = case.gradient(), other.gradient()
    assert other_loss.item() == pytest.approx(loss.item(), rel=1e-12)
    expected = fast.layout.views(gradient)
    for name, found in zip(order, general.layout.views(other_gradient).values(), strict=True):
        assert (found - expected[name]).norm() <= 1e-6 * expected[name].norm(), name
    predictions = [
        network.predict(vector, case.images, 3, torch.Generator().manual_seed(0))
        for network, vector in ((fast, case.vector), (general, other.vector))
    ]
    torch.testing.assert_close(predictions[0], predictions[1])


# Against the same network in explicit variational layers


def small_cnn() -> nn.Module:
    """One convolution with stride and padding, a norm with parameters of its own, one dense layer."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3)
    )


def explicit_logits(leaf: dict[str, Tensor], gaussian: set[str], images: Tensor, noise: Tensor) -> Tensor:
    """small_cnn by hand. Noise: 36 of the convolution's outputs, 3 of the logits, then 8 of the norm, if Gaussian."""
    eps_conv, eps_dense = noise[:, :-11], noise[:, -11:-8]
    if "1.weight" not in gaussian:
        eps_conv, eps_dense = noise[:, :-3], noise[:, -3:]

    def mean(name: str) -> Tensor:
        return leaf[f"{name}.mean"] if name in gaussian else leaf[name]

    def variance(name: str) -> Tensor:
        if name in gaussian:
            return leaf[f"{name}.log_variance"].clamp(*PRIOR.bounds).exp()
        return torch.zeros_like(leaf[name])

    x = F.conv2d(images, mean("0.weight"), mean("0.bias"), stride=2, padding=1)
    if "0.weight" in gaussian:
        spread = F.conv2d(images**2, variance("0.weight"), variance("0.bias"), stride=2, padding=1)
        x = x + (spread + 1e-8) ** 0.5 * eps_conv.reshape(-1, 4, 3, 3)
    scale, shift = mean("1.weight"), mean("1.bias")
    if "1.weight" in gaussian:
        scale = scale + variance("1.weight") ** 0.5 * noise[0, -8:-4]
        shift = shift + variance("1.bias") ** 0.5 * noise[0, -4:]
    groups = x.reshape(len(x), 2, -1)
    normed = (groups - groups.mean(2, keepdim=True)) / (groups.var(2, correction=0, keepdim=True) + 1e-5) ** 0.5
    x = torch.tanh(normed.reshape(x.shape) * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)).flatten(1)
    x2 = x**2
    spread = x2 @ variance("4.weight").T + variance("4.bias")
    return x @ mean("4.weight").T + mean("4.bias") + (spread + 1e-8) ** 0.5 * eps_dense


@pytest.mark.parametrize(
    ("variational", "gaussian"),
    [
        ("dense", {"4.weight"}),
        ("last:1", {"4.weight"}),
        ("last:2", {"0.weight", "4.weight"}),
        ("all", {"0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias"}),
    ],
)
def test_against_explicit_variational_layers(variational: str, gaussian: set[str]) -> None:
    network = make(small_cnn, (2, 5, 6), variational)
    assert set(network.layout.gaussian) == gaussian
    case = Case(network)
    loss, gradient = case.gradient(kl_weight=0.02)

    vector = case.vector.clone().requires_grad_()
    leaf = network.layout.views(vector)
    expected = F.cross_entropy(explicit_logits(leaf, gaussian, case.images, case.noise), case.labels)
    prior = Normal(torch.tensor(0.1, dtype=torch.float64), 0.7)
    for name in gaussian:
        deviation = (0.5 * leaf[f"{name}.log_variance"].clamp(*PRIOR.bounds)).exp()
        expected = expected + 0.02 * torch_kl_divergence(Normal(leaf[f"{name}.mean"], deviation), prior).sum()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, vector)[0], rtol=1e-9, atol=1e-12)
    at_bounds = case.vector[network.layout.log_variances][:2]
    assert at_bounds.tolist() == list(PRIOR.bounds)
    assert gradient[network.layout.log_variances][:2].tolist() == [0.0, 0.0]


def test_projection_passes_gradients_at_and_beyond_the_bounds() -> None:
    case = Case(make(small_cnn, (2, 5, 6), "all", Posterior(0.1, 0.7, (-8.0, 1.0), "project")))
    assert torch.count_nonzero(case.gradient()[1][case.layout.log_variances]) == case.layout.size // 2


def test_without_divergence_the_gradient_is_that_of_the_data() -> None:
    found = [
        Case(make(small_cnn, (2, 5, 6), "all", Posterior(*prior, (-8.0, 1.0)))).gradient(kl_weight=0.0)
        for prior in ((0.0, 1.0), (0.3, 0.1))
    ]
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert torch.isfinite(found[0][1]).all()


# Against weights that are sampled


def small_mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("variational", ["dense", "all"])
def test_expected_gradient_is_that_of_sampled_weights(variational: str) -> None:
    network = make(small_mlp, (4,), variational)
    case = Case(network, batch=1)
    repeats, draws = 40, 500
    generator = torch.Generator().manual_seed(2)
    images, labels = case.images.expand(draws, -1), case.labels.expand(draws)
    local, sampled, out = [], [], torch.empty_like(case.vector)
    for _ in range(repeats):
        noise = torch.randn(draws, 5 + 3, dtype=torch.float64, generator=generator)
        network.gradient(case.vector, images, labels, noise, 0.0, out)
        local.append(out.clone())
        vector = case.vector.clone().requires_grad_()
        leaf = network.layout.views(vector)
        weights = {}
        for name in ("0.weight", "0.bias", "2.weight", "2.bias"):
            if name not in network.layout.gaussian:
                weights[name] = leaf[name].expand(draws, *leaf[name].shape)
                continue
            mean, log_variance = leaf[f"{name}.mean"], leaf[f"{name}.log_variance"].clamp(*PRIOR.bounds)
            eps = torch.randn(draws, *mean.shape, dtype=torch.float64, generator=generator)
            weights[name] = mean + (0.5 * log_variance).exp() * eps
        x = torch.tanh((weights["0.weight"] @ images.unsqueeze(2)).squeeze(2) + weights["0.bias"])
        logits = (weights["2.weight"] @ x.unsqueeze(2)).squeeze(2) + weights["2.bias"]
        sampled.append(torch.autograd.grad(F.cross_entropy(logits, labels), vector)[0])
    first, second = torch.stack(local), torch.stack(sampled)
    error = ((first.var(0) + second.var(0)) / repeats).sqrt()
    deviations = (first.mean(0) - second.mean(0)).abs() / error.clamp_min(1e-12)
    assert deviations.max() < 4.5
    assert error.max() < 0.1 * second.mean(0).abs().max()


# Parts


def test_dropout_takes_its_mask_from_the_noise() -> None:
    network = make(lambda: nn.Sequential(nn.Linear(4, 50), Dropout(0.3), nn.Linear(50, 3)), (4,), "none")
    assert network.layout.noise_size == 50
    case = Case(network, batch=400)
    loss, _ = case.gradient()
    named = network.layout.views(case.vector)
    hidden = F.linear(case.images, named["0.weight"], named["0.bias"])
    kept = case.noise < 0.5244005127080407  # the standard normal's quantile of 0.7
    assert kept.double().mean().item() == pytest.approx(0.7, abs=0.02)
    logits = F.linear(hidden * kept / 0.7, named["2.weight"], named["2.bias"])
    assert loss.item() == pytest.approx(F.cross_entropy(logits, case.labels).item(), rel=1e-12)
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    probabilities, _ = network.predict(case.vector, case.images, 5, generator)
    expected = F.linear(hidden, named["2.weight"], named["2.bias"]).softmax(1)
    torch.testing.assert_close(probabilities, expected)
    assert torch.equal(generator.get_state(), before)


def test_dropout_keeps_half_and_doubles_it_unless_told_otherwise() -> None:
    layer = Dropout()
    layer.noise = lambda x: torch.tensor([-3.0, -0.01, 0.01, 3.0])
    assert layer(torch.ones(4)).tolist() == [2.0, 2.0, 0.0, 0.0]


def test_dropout_outside_federated_training_says_what_to_do() -> None:
    network = make(lambda: nn.Sequential(nn.Linear(4, 3), Dropout(0.3)), (4,), "none")
    module = network.module(network.layout.initial_vector(-2.0, torch.Generator().manual_seed(0)))
    assert module(torch.ones(1, 4)).shape == (1, 3)
    with pytest.raises(RuntimeError, match=r"call eval\(\) first"):
        module.train()(torch.ones(1, 4))


def test_squared_gradients_are_those_without_dropout() -> None:
    network = make(lambda: nn.Sequential(nn.Linear(4, 20), Dropout(0.5), nn.Linear(20, 3)), (4,), "none")
    vector = torch.randn(network.layout.size, generator=torch.Generator().manual_seed(0)).double()
    inputs = torch.rand(6, 4, generator=torch.Generator().manual_seed(1)).double()
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    expected = torch.zeros_like(vector)
    for image, label in zip(inputs, labels, strict=True):
        leaf = vector.clone().requires_grad_()
        named = network.layout.views(leaf)
        hidden = F.linear(image, named["0.weight"], named["0.bias"])
        logits = F.linear(hidden, named["2.weight"], named["2.bias"])
        expected += torch.autograd.grad(F.cross_entropy(logits, label), leaf)[0].square() / 6
    torch.testing.assert_close(squared_gradients(network, vector, inputs, labels), expected)


def test_prediction_with_drawn_weights_averages_over_the_documented_noise() -> None:
    network = make(small_cnn, (2, 5, 6), "all")
    case, samples = Case(network), 3
    probabilities, entropies = network.predict(case.vector, case.images, samples, torch.Generator().manual_seed(5))
    generator, logs = torch.Generator().manual_seed(5), []
    for _ in range(samples):
        weights, *outputs = (torch.empty(n, dtype=torch.float64) for n in (8, (36, 5), (3, 5)))
        for each in (weights[:4], weights[4:], *outputs):
            each.normal_(generator=generator)
        noise = torch.cat([*(each.t() for each in outputs), weights.expand(5, -1)], dim=1)
        leaf = network.layout.views(case.vector)
        logs.append(explicit_logits(leaf, set(network.layout.gaussian), case.images, noise).log_softmax(1))
    expected = torch.stack(logs)
    torch.testing.assert_close(probabilities, expected.exp().mean(0))
    torch.testing.assert_close(entropies, -(expected.exp() * expected).sum(2).mean(0))


def test_a_layer_that_is_called_twice_has_its_weight_drawn_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.tanh(self.layer(torch.tanh(self.layer(x)))))

    network = make(Twice, (4,), "dense")
    assert network.layout.noise_size == 3 + 16
    case = Case(network)
    named = network.layout.views(case.vector)
    deviation = named["layer.weight.log_variance"].clamp(*PRIOR.bounds).exp().sqrt()
    weight = named["layer.weight.mean"] + deviation * case.noise[0, 3:].view(4, 4)
    x = case.images
    for _ in range(2):
        x = torch.tanh(F.linear(x, weight, named["layer.bias"]))
    spread = x**2 @ named["last.weight.log_variance"].clamp(*PRIOR.bounds).exp().T
    logits = F.linear(x, named["last.weight.mean"], named["last.bias"]) + (spread + 1e-8) ** 0.5 * case.noise[:, :3]
    assert case.gradient(0.0)[0].item() == pytest.approx(F.cross_entropy(logits, case.labels).item(), rel=1e-12)


def test_a_layer_that_only_prediction_calls_twice_has_its_weight_drawn_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) if self.training else self.layer(self.layer(x))

    case = Case(make(Twice, (3,), "dense"))
    assert case.layout.noise_size == 9
    named = case.layout.views(case.vector)
    deviation = (0.5 * named["layer.weight.log_variance"].clamp(*PRIOR.bounds)).exp()
    weight = named["layer.weight.mean"] + deviation * case.noise[0].view(3, 3)
    logits = F.linear(case.images, weight, named["layer.bias"])
    assert case.gradient(0.0)[0].item() == pytest.approx(F.cross_entropy(logits, case.labels).item(), rel=1e-12)
    probabilities, _ = case.network.predict(case.vector, case.images, 1, torch.Generator().manual_seed(5))
    eps = torch.empty(9, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(5)).view(3, 3)
    weight = named["layer.weight.mean"] + deviation * eps
    logits = F.linear(F.linear(case.images, weight, named["layer.bias"]), weight, named["layer.bias"])
    torch.testing.assert_close(probabilities, logits.softmax(1))


def test_a_dense_layer_with_a_forward_of_its_own_has_its_weight_drawn() -> None:
    class Tripled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 3 * super().forward(x)

    case = Case(make(lambda: Tripled(4, 3), (4,), "dense"))
    assert case.layout.noise_size == 12
    named = case.layout.views(case.vector)
    deviation = (0.5 * named["weight.log_variance"].clamp(*PRIOR.bounds)).exp()
    weight = named["weight.mean"] + deviation * case.noise[0].view(3, 4)
    logits = 3 * F.linear(case.images, weight, named["bias"])
    assert case.gradient(0.0)[0].item() == pytest.approx(F.cross_entropy(logits, case.labels).item(), rel=1e-12)


def test_a_dense_layer_without_a_weight_of_its_own_does_not_count() -> None:
    def normed() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 5), nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)))

    assert set(make(normed, (4,), "dense").layout.gaussian) == {"0.weight"}
    assert set(make(normed, (4,), "last:1").layout.gaussian) == {"0.weight"}


def test_a_parameter_that_is_not_used_has_a_gradient_of_0() -> None:
    def unused() -> nn.Module:
        module = small_mlp()
        module.register_parameter("unused", nn.Parameter(torch.ones(2)))
        return module

    for variational in ("none", "all"):
        case = Case(make(unused, (4,), variational))
        gradient = case.layout.views(case.gradient(kl_weight=0.0)[1])
        unmoved = [values for name, values in gradient.items() if "unused" in name]
        assert len(unmoved) == (1 if variational == "none" else 2)
        assert not any(values.any() for values in unmoved)


def test_a_variance_that_is_rounded_to_0_has_a_finite_gradient() -> None:
    posterior = Posterior(0.1, 0.7, (-300.0, 1.0), "project")
    case = Case(make(small_cnn, (2, 5, 6), "all", posterior))
    case.vector, case.noise = case.vector.float(), case.noise.float()
    case.vector[case.layout.log_variances] = -200.0
    loss, gradient = case.gradient()
    assert torch.isfinite(loss) and torch.isfinite(gradient).all()


def test_buffers_follow_the_vector_s_precision_unless_they_hold_whole_numbers() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.register_buffer("mixing", torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]))
            self.register_buffer("order", torch.tensor([2, 0, 1]))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(self.layer(x), self.get_buffer("mixing"))[:, self.get_buffer("order")]

    case = Case(make(Mixed, (4,), "none"))
    named = case.layout.views(case.vector)
    first, second, third = F.linear(case.images, named["layer.weight"], named["layer.bias"]).unbind(1)
    expected = torch.stack([-third, 2 * second, first], dim=1).softmax(1)
    for dtype in (torch.float32, torch.float64, torch.float32):
        found, _ = case.network.predict(case.vector.to(dtype), case.images, 1, torch.Generator())
        torch.testing.assert_close(found, expected.to(dtype))


def test_initial_weights_follow_from_the_generator_alone() -> None:
    network = make(small_mlp, (4,), "dense")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(3)
    first = network.layout.initial_vector(-9.0, generator)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    other = make(small_mlp, (4,), "dense")
    assert torch.equal(first, other.layout.initial_vector(-9.0, torch.Generator().manual_seed(3)))
    assert not torch.equal(first, other.layout.initial_vector(-9.0, generator))
    torch.manual_seed(3)
    module = small_mlp()
    named = network.layout.views(first)
    assert torch.equal(named["0.weight.mean"], module.get_parameter("0.weight"))
    assert torch.equal(named["2.bias"], module.get_parameter("2.bias"))
    log_variances = first[network.layout.log_variances]
    assert ((log_variances + 9.0).abs() < 0.006).all()
    assert len(set(log_variances.tolist())) == 4 * 5 + 5 * 3


def test_the_generator_moves_on_by_what_the_module_drew() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (initial_module(small_mlp, generator) for _ in range(2))
    weights = [module.get_parameter("0.weight") for module in (first, second)]
    assert not torch.equal(*weights)


def test_calls_do_not_depend_on_what_was_computed_before() -> None:
    case = Case(make(small_cnn, (2, 5, 6), "all"))
    loss, gradient = case.gradient()
    case.network.predict(case.vector.float(), case.images[:2].float(), 2, torch.Generator().manual_seed(0))
    again, same = case.gradient()
    assert torch.equal(loss, again)
    assert torch.equal(gradient, same)
    with pytest.raises(ValueError, match="needs noise"):
        case.network.gradient(case.vector, case.images, case.labels, None, 0.0, gradient)


@pytest.mark.parametrize("spec", [{"name": "lenet"}, {"name": "mlp"}], ids=str)
@pytest.mark.parametrize("variational", ["none", "dense"])
def test_module_has_the_means(spec: dict[str, str], variational: str) -> None:
    """With variances of next to nothing, the network predicts what the plain module says."""
    network = networks.build(spec, (1, 16, 16), 3, variational, Posterior(bounds=(-60.0, 1.0)), "cpu")
    vector = network.layout.initial_vector(-50.0, torch.Generator().manual_seed(0))
    images = torch.rand(4, 1, 16, 16)
    expected, _ = network.predict(vector, images, 1, torch.Generator().manual_seed(0))
    module = network.module(vector)
    assert not module.training
    torch.testing.assert_close(module(images).softmax(1), expected, rtol=1e-2, atol=1e-3)
    assert math.isfinite(float(expected.sum()))


def test_file_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom torch import nn\n\n"
        "@dataclass\nclass Size:\n    width: int\n\ndef build(image_shape, labels, width=8):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.ReLU(), nn.Linear(width, labels))\n"
    )
    network = networks.build({"file": str(file), "width": 5}, (1, 4, 4), 3, "dense", PRIOR, "cpu")
    assert network.layout.tensors["1.weight.mean"][1] == (5, 16)
    assert list(network.layout.tensors)[:2] == ["1.bias", "3.bias"]


def test_an_edit_of_the_same_length_within_a_second_counts(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    source = "from torch.nn import *\ndef build(shape, labels):\n    return Sequential(Linear(4, 64), Linear(64, 3))\n"
    sizes = []
    for text in (source, source.replace("64", "32")):
        file.write_text(text, encoding="utf-8")
        os.utime(file, (1e9, 1e9))
        sizes.append(networks.build({"file": str(file)}, (4,), 3, "none", PRIOR, "cpu").layout.size)
    assert sizes == [4 * 64 + 64 + 64 * 3 + 3, 4 * 32 + 32 + 32 * 3 + 3]
