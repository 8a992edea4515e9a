"""The flat layout: order, stretches, initial values."""

import math

import pytest
import torch

from bflp.networks.layout import Layout
from bflp.networks.lenet import LeNetLayout

FMNIST = (1, 28, 28)


def test_sizes_of_the_paper() -> None:
    fmnist, cifar10 = LeNetLayout(FMNIST, 10, True), LeNetLayout((3, 32, 32), 10, True)
    assert (fmnist.feature_size, cifar10.feature_size) == (256, 400)
    assert fmnist.means.stop - fmnist.means.start == 41_640
    assert fmnist.noise_size == 120 + 84 + 10
    assert fmnist.size == 44_426 + 41_640
    deterministic = LeNetLayout(FMNIST, 10, False)
    assert (deterministic.size, deterministic.noise_size) == (44_426, 0)


@pytest.mark.parametrize("variational", [True, False])
def test_the_stretches_follow_each_other_and_hold_the_tensors_in_order(variational: bool) -> None:
    layout = LeNetLayout((2, 17, 19), 12, variational)
    deterministic = [f"{layer}.{kind}" for layer in ("conv1", "conv2") for kind in ("weight", "bias")]
    deterministic += ["dense1.bias", "dense2.bias", "dense3.bias"]
    kinds = ("mean", "log_variance") if variational else ("weight",)
    weights = [f"{layer}.{kind}" for kind in kinds for layer in ("dense1", "dense2", "dense3")]
    assert list(layout.tensors) == deterministic + weights

    stops = [0] + [where.stop for where, _ in layout.tensors.values()]
    assert [where.start for where, _ in layout.tensors.values()] == stops[:-1]
    assert stops[-1] == layout.size
    assert layout.deterministic.stop == layout.means.start
    assert layout.means.stop == layout.log_variances.start
    assert layout.log_variances.stop == layout.size
    if variational:
        assert layout.tensors["dense1.mean"][0].start == layout.means.start
        assert layout.tensors["dense1.log_variance"][0].start == layout.log_variances.start
    else:
        assert layout.deterministic == slice(0, layout.size)


def test_views_share_the_vectors_memory() -> None:
    layout = LeNetLayout(FMNIST, 10, True)
    vector = torch.zeros(layout.size)
    layout.views(vector)["dense3.log_variance"].fill_(1.0)
    assert vector.sum() == 840
    assert vector[-840:].sum() == 840
    with pytest.raises(ValueError, match="expected a vector of"):
        layout.views(torch.zeros(layout.size + 1))


class Counting(Layout):
    """Deterministic tensors are 1, means are 2."""

    def fill(self, tensors: dict[str, torch.Tensor], generator: torch.Generator) -> None:
        for name, tensor in tensors.items():
            tensor.fill_(2.0 if name.endswith(".mean") else 1.0)


def test_any_shapes_lie_in_three_parts() -> None:
    layout = Counting({"a": (2, 3), "scale": ()}, {"w": (4,), "b.v": (1, 2)}, 5)
    assert list(layout.tensors) == ["a", "scale", "w.mean", "b.v.mean", "w.log_variance", "b.v.log_variance"]
    assert (layout.size, layout.noise_size) == (7 + 2 * 6, 5)
    assert (layout.deterministic, layout.means, layout.log_variances) == (slice(0, 7), slice(7, 13), slice(13, 19))
    assert layout.tensors["b.v.log_variance"] == (slice(17, 19), (1, 2))
    vector = layout.initial_vector(-9.0, torch.Generator().manual_seed(0))
    assert vector[:13].tolist() == [1.0] * 7 + [2.0] * 6
    assert ((vector[13:] + 9.0).abs() < 0.006).all()
    assert len(set(vector[13:].tolist())) == 6


@pytest.mark.parametrize("shape", [(784,), (1, 15, 28), (1, 28, 15), (0, 28, 28)])
def test_small_images_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 16x16 pixels"):
        LeNetLayout(shape, 10, True)


def test_a_single_label_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 labels"):
        LeNetLayout(FMNIST, 1, True)


def test_initial_vector_follows_from_the_generator_alone() -> None:
    layout = LeNetLayout(FMNIST, 10, True)
    torch.manual_seed(1)
    first = layout.initial_vector(-9.0, torch.Generator().manual_seed(3))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = layout.initial_vector(-9.0, torch.Generator().manual_seed(3))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.dtype == torch.float32
    assert not torch.equal(first, layout.initial_vector(-9.0, torch.Generator().manual_seed(4)))


def test_initial_distributions_of_the_variational_network() -> None:
    layout = LeNetLayout((3, 32, 32), 10, True)
    named = layout.views(layout.initial_vector(-9.0, torch.Generator().manual_seed(0)))
    for layer, fan_in in (("dense1", 400), ("dense2", 120), ("dense3", 84)):
        mean, log_variance = named[f"{layer}.mean"], named[f"{layer}.log_variance"]
        count = mean.numel()
        tolerance = 4.0 / math.sqrt(2 * count)  # four standard errors of a relative standard deviation
        assert mean.std().item() * math.sqrt(fan_in) == pytest.approx(1.0, rel=tolerance)
        assert abs(mean.mean().item()) < 4.0 / math.sqrt(fan_in * count)
        assert log_variance.mean().item() == pytest.approx(-9.0, abs=4e-3 / math.sqrt(count) + 1e-5)
        assert log_variance.std().item() == pytest.approx(1e-3, rel=tolerance)
        assert torch.count_nonzero(named[f"{layer}.bias"]) == 0


@pytest.mark.parametrize("variational", [True, False])
def test_everything_else_is_uniform_as_in_torch(variational: bool) -> None:
    layout = LeNetLayout((3, 32, 32), 10, variational)
    named = layout.views(layout.initial_vector(-9.0, torch.Generator().manual_seed(0)))
    fans = {"conv1": 75, "conv2": 150}
    if not variational:
        fans |= {"dense1": 400, "dense2": 120, "dense3": 84}
    for layer, fan_in in fans.items():
        bound = 1.0 / math.sqrt(fan_in)
        weight, bias = named[f"{layer}.weight"], named[f"{layer}.bias"]
        assert 0.9 * bound < weight.abs().max().item() <= bound
        assert 0.3 * bound < bias.abs().max().item() <= bound
        # a uniform distribution's standard deviation, to within four standard errors
        error = 4.0 * math.sqrt(0.2 / weight.numel())
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3.0), rel=error)
