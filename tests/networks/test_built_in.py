"""The networks that come with the product: shapes, gradients, settings."""

import importlib
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bflp import networks
from bflp.networks import NetworkError
from bflp.networks.lenet import LeNet
from bflp.networks.posterior import Posterior

MLP = {"name": "mlp", "sizes": [7, 5], "activation": "tanh"}
SPECS = [{"name": "lenet"}, MLP, {"name": "cnn"}, {"name": "resnet20"}]
POSTERIOR = Posterior(0.1, 0.7, (-8.0, 8.0))


def build(spec: dict[str, object], variational: str, shape: tuple[int, ...] = (1, 16, 16)) -> networks.Network:
    return networks.build(spec, shape, 4, variational, POSTERIOR, "cpu")


@pytest.mark.parametrize(
    ("spec", "shape", "parameters"),
    [
        ({"name": "mlp"}, (1, 28, 28), 784 * 200 + 200 + 200 * 100 + 100 + 100 * 4 + 4),
        ({"name": "mlp", "sizes": []}, (54,), 54 * 4 + 4),
        # by hand: 5x5 convolutions, dense layers on 64 maps of 5x5 and of 4x4
        ({"name": "cnn"}, (3, 32, 32), 4864 + 102464 + 1600 * 384 + 384 + 384 * 192 + 192 + 192 * 4 + 4),
        ({"name": "cnn"}, (1, 28, 28), 1664 + 102464 + 1024 * 384 + 384 + 384 * 192 + 192 + 192 * 4 + 4),
        # 269,722 with 10 labels in others' implementations with option A (65 * 10 of them in the dense layer)
        ({"name": "resnet20"}, (3, 32, 32), 269_722 - 650 + 65 * 4),
    ],
)
def test_numbers_of_parameters(spec: dict[str, object], shape: tuple[int, ...], parameters: int) -> None:
    assert build(spec, "none", shape).layout.size == parameters


@pytest.mark.parametrize(
    ("spec", "variational", "gaussians", "noise_size"),
    [
        ({"name": "mlp"}, "dense", 256 * 200 + 200 * 100 + 100 * 4, 304),
        ({"name": "mlp"}, "last:1", 100 * 4, 4),
        ({"name": "cnn"}, "last:2", 384 * 192 + 192 * 4, 196),
        ({"name": "cnn"}, "last:4", 64 * 64 * 25 + 64 * 384 + 384 * 192 + 192 * 4, 64 * 4 + 580),
        ({"name": "resnet20"}, "dense", 64 * 4, 4),
        ({"name": "lenet"}, "last:1", 84 * 4, 4),
        ({"name": "lenet"}, "last:3", 16 * 120 + 120 * 84 + 84 * 4, 208),
        ({"name": "lenet"}, "all", 156 + 2416 + 17 * 120 + 121 * 84 + 85 * 4, 6 * 144 + 16 * 4 + 208),
    ],
)
def test_which_weights_are_gaussian(spec: dict[str, object], variational: str, gaussians: int, noise_size: int) -> None:
    layout = build(spec, variational).layout
    assert layout.means.stop - layout.means.start == gaussians
    assert layout.noise_size == noise_size


def test_the_hand_written_lenet_is_used_where_it_has_the_posterior() -> None:
    for variational, fast in (("none", True), ("dense", True), ("last:3", True), ("last:2", False), ("all", False)):
        assert isinstance(build({"name": "lenet"}, variational), LeNet) == fast


def built(name: str, shape: tuple[int, ...], **settings: object) -> tuple[nn.Module, Iterator[Tensor]]:
    """A network of 4 labels in float64 with random parameters, and these in the order of the network's layers."""
    module = importlib.import_module(f"bflp.networks.{name}").build(shape, 4, **settings).double()
    generator = torch.Generator().manual_seed(4)
    for parameter in module.parameters():
        parameter.detach().normal_(0.0, 2 / parameter[0].numel() ** 0.5, generator=generator)
    return module, iter([parameter.detach() for parameter in module.parameters()])


def inputs(*shape: int) -> Tensor:
    return torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    ("settings", "activation"),
    [
        ({}, lambda x: x.clamp(min=0)),
        ({"activation": "relu"}, lambda x: x.clamp(min=0)),
        ({"activation": "sigmoid"}, lambda x: 1 / (1 + (-x).exp())),
        ({"activation": "tanh"}, lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())),
        ({"activation": "gelu"}, lambda x: x * torch.distributions.Normal(0, 1).cdf(x)),
        ({"activation": "elu"}, lambda x: torch.where(x > 0, x, x.exp() - 1)),
    ],
)
def test_mlp_by_hand(settings: dict[str, object], activation: Callable[[Tensor], Tensor]) -> None:
    (module, p), images = built("mlp", (1, 2, 3), sizes=(7, 5), **settings), inputs(1, 2, 3)
    x = images.reshape(3, 6)
    for _ in range(2):
        x = activation(x @ next(p).T + next(p))
    torch.testing.assert_close(module(images), x @ next(p).T + next(p))


def test_cnn_by_hand() -> None:
    (module, p), images = built("cnn", (2, 16, 18)), inputs(2, 16, 18)
    x = images
    for _ in range(2):
        x = functional.max_pool2d(functional.conv2d(x, next(p), next(p)).clamp(min=0), 2)
    x = x.flatten(1)
    for _ in range(2):
        x = (x @ next(p).T + next(p)).clamp(min=0)
    torch.testing.assert_close(module(images), x @ next(p).T + next(p))


def test_resnet20_by_hand() -> None:
    (module, p), images = built("resnet20", (3, 10, 9)), inputs(3, 10, 9)

    def stage(x: Tensor, stride: int = 1) -> Tensor:
        """A convolution and its norm over halves of the maps."""
        y = functional.conv2d(x, next(p), stride=stride, padding=1)
        halves = y.reshape(len(y), 2, -1)
        normed = (halves - halves.mean(2, keepdim=True)) / (halves.var(2, correction=0, keepdim=True) + 1e-5).sqrt()
        return normed.view(y.shape) * next(p).view(-1, 1, 1) + next(p).view(-1, 1, 1)

    x = stage(images).clamp(min=0)
    for stride in (1, 1, 1, 2, 1, 1, 2, 1, 1):
        y = stage(stage(x, stride).clamp(min=0))
        y[:, : x.shape[1]] += x[:, :, ::stride, ::stride]
        x = y.clamp(min=0)
    assert x.shape[1:] == (64, 3, 3)
    torch.testing.assert_close(module(images), x.mean((2, 3)) @ next(p).T + next(p))


@pytest.mark.slow
@pytest.mark.parametrize("variational", ["none", "dense", "all"])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["name"])
def test_gradient_against_finite_differences(spec: dict[str, object], variational: str) -> None:
    network = build(spec, variational)
    layout, generator = network.layout, torch.Generator().manual_seed(2)
    vector = layout.initial_vector(-4.0, generator).double()
    vector[layout.log_variances].uniform_(-5.0, -2.0, generator=generator)
    images = torch.rand(3, *network.input_shape, generator=generator).double()
    labels = torch.randint(4, (3,), generator=generator)
    noise = torch.randn(3, layout.noise_size, generator=generator).double()

    def loss(at: Tensor, out: Tensor) -> float:
        return float(network.gradient(at, images, labels, noise, 1e-4, out))

    gradient, unused, step = torch.empty_like(vector), torch.empty_like(vector), 1e-6
    loss(vector, gradient)
    tensors = list(layout.tensors.items())
    for name, (where, _) in tensors[:: 1 + len(tensors) // 15]:
        direction = torch.zeros_like(vector)
        direction[where] = gradient[where] / gradient[where].norm()
        slope = (loss(vector + step * direction, unused) - loss(vector - step * direction, unused)) / (2 * step)
        assert slope == pytest.approx(float(gradient[where].norm()), rel=1e-4, abs=1e-8), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "repeats"),
    [(MLP, 300), *(pytest.param({"name": name}, 20, marks=pytest.mark.slow, id=name) for name in ("cnn", "resnet20"))],
)
def test_expected_gradient_is_that_of_sampled_weights(spec: dict[str, object], repeats: int) -> None:
    """Along random directions: noise of each layer's output against dense weights that are drawn for each sample."""
    network = build(spec, "dense")
    layout, generator = network.layout, torch.Generator().manual_seed(3)
    vector = layout.initial_vector(-4.0, generator).double()
    vector[layout.log_variances].uniform_(-5.0, -2.0, generator=generator)
    settings = {key: value for key, value in spec.items() if key != "name"}
    module = importlib.import_module(f"bflp.networks.{spec['name']}").build(network.input_shape, 4, **settings).double()
    image, label = torch.rand(network.input_shape, generator=generator).double(), torch.tensor(1)
    draws = 50
    directions = torch.randn(vector.numel(), 12, dtype=torch.float64, generator=generator)
    directions[layout.log_variances, :4] = directions[: layout.means.stop, 4:8] = 0.0
    images, labels, out = image.expand(draws, *image.shape), label.expand(draws), torch.empty_like(vector)

    def one(weights: dict[str, Tensor]) -> Tensor:
        logits = torch.func.functional_call(module, weights, (image.unsqueeze(0),))
        return functional.cross_entropy(logits, label.unsqueeze(0))

    found, expected = [], []
    for _ in range(repeats):
        noise = torch.randn(draws, layout.noise_size, dtype=torch.float64, generator=generator)
        network.gradient(vector, images, labels, noise, 0.0, out)
        found.append(out @ directions)
        leaf = vector.clone().requires_grad_()
        parts = layout.views(leaf)
        plain = (name for name, _ in module.named_parameters() if name not in layout.gaussian)
        weights = {name: parts[name].expand(draws, *parts[name].shape) for name in plain}
        for name, shape in layout.gaussian.items():
            eps = torch.randn(draws, *shape, dtype=torch.float64, generator=generator)
            weights[name] = parts[f"{name}.mean"] + (0.5 * parts[f"{name}.log_variance"]).exp() * eps
        loss = torch.vmap(one)(weights).mean()
        expected.append(torch.autograd.grad(loss, leaf)[0] @ directions)
    first, second = torch.stack(found), torch.stack(expected)
    error = ((first.var(0) + second.var(0)) / repeats).sqrt()
    assert ((first.mean(0) - second.mean(0)).abs() / error).max() < 4.0
    assert error.max() < 0.2 * second.mean(0).abs().max()


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        ({"name": "cnn"}, (784,), "cnn needs images of at least 16x16 pixels, got 784"),
        ({"name": "cnn"}, (1, 12, 28), "cnn needs images of at least 16x16 pixels, got 1x12x28"),
        ({"name": "resnet20"}, (3, 7, 7), "resnet20 needs images of at least 8x8 pixels"),
        ({"name": "lenet"}, (784,), "LeNet needs images of at least 16x16 pixels"),
    ],
)
def test_what_does_not_fit_is_refused(spec: dict[str, object], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(NetworkError, match=message) as caught:
        build(spec, "none", shape)
    assert "\n" not in str(caught.value)
