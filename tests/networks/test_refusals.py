"""What a spec or a module must not be: refused in one line, before any training."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bflp import networks
from bflp.networks import NetworkError
from bflp.networks.layers import Dropout
from bflp.networks.plain import PlainNetwork
from bflp.networks.posterior import Posterior
from bflp.networks.sampled import SampledPosterior
from bflp.networks.trial import try_out

ROWS = nn.Unflatten(1, (3, 2))


def network(module: Callable[[], object], variational: str = "none") -> PlainNetwork:
    return PlainNetwork("mine.py", module, (4,), 3, variational, Posterior(), "cpu")  # type: ignore[arg-type]


def around(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), *layers, nn.Linear(6, 3))


class Own(nn.Module):
    """A layer, and a function of one's own around it."""

    def __init__(self, function: Callable[[Any, Tensor], object], **attributes: object) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> object:
        return self.function(self, self.layer(x))


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    module[1].weight = module[0].weight
    return module


def frozen() -> nn.Module:
    module = around()
    module[0].bias.requires_grad_(False)
    return module


def update(module: nn.Module, x: Tensor) -> Tensor:
    raise RuntimeError("first line\nsecond line")


def predicts_no_batch_of_three(module: nn.Module, y: Tensor) -> Tensor:
    if not module.training and len(y) == 3:
        raise RuntimeError("in prediction")
    return y


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: around(nn.BatchNorm1d(6)), r"1 \(BatchNorm1d\): running statistics .*use GroupNorm"),
        (lambda: around(nn.BatchNorm1d(6, track_running_stats=False)), "BatchNorm1d.*use GroupNorm"),
        (
            lambda: around(nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten()),
            "2.running_mean changes from batch to batch: .*use GroupNorm",
        ),
        (lambda: around(nn.Dropout(0.5)), r"1 \(Dropout\): draws .*bflp.networks.layers.Dropout"),
        (lambda: around(nn.TransformerEncoderLayer(6, 2, 8)), "draws from torch's global generator"),
        (tied, "0.weight and 1.weight share a parameter: give each its own"),
        (frozen, "0.bias takes no gradient: make it a buffer"),
        (lambda: around().double(), "0.weight is not a float32 tensor"),
        (lambda: nn.Sequential(nn.LazyLinear(3)), "0.weight is not a float32 tensor of known shape"),
        (nn.Flatten, "has no parameters to train"),
        (lambda: 3, "must return a torch.nn.Module, got int"),
        (lambda: nn.Linear(4, 5), r"must make 3 logits of each input of shape 4, \[batch, 3\], but .* makes \(2, 5\)"),
        (lambda: Own(lambda _, y: (y, y)), "makes tuple"),
        (lambda: nn.Linear(5, 3), "fails on inputs of shape 4: RuntimeError"),
        (lambda: 1 / 0, "build failed: ZeroDivisionError: division by zero"),
        (lambda: Own(update), "fails on inputs of shape 4: RuntimeError: first line second line"),
        (lambda: around(Dropout(1.0)), "between 0 and 1, got 1.0"),
        (lambda: around(Dropout(0.0)), "between 0 and 1, got 0.0"),
    ],
)
def test_modules_refused_when_built(module: Callable[[], object], message: str) -> None:
    with pytest.raises(NetworkError, match=message) as caught:
        network(module)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: Own(lambda _, y: F.dropout(y, 0.5)), "draws random numbers of its own"),
        (lambda: Own(lambda _, y: y + torch.rand(())), "draws random numbers of its own"),
        (lambda: Own(lambda _, y: y * random.random()), "draws random numbers of its own"),
        (lambda: Own(lambda _, y: y - y.mean(0)), "depends on the others in the batch"),
        (lambda: Own(lambda _, y: y / len(y)), "depends on the others in the batch"),
        (lambda: Own(lambda _, y: (y - y.mean(0)) @ torch.eye(3)), "depends on the others in the batch"),
        (lambda: Own(lambda _, y: y if len(y) > 1 else y[0]), "fails on a batch of 1: "),
        (lambda: Own(lambda _, y: y if len(y) == 2 else y.view(2, -1)), "fails on a batch of 3: "),
        (lambda: Own(predicts_no_batch_of_three), "fails on a batch of 3: RuntimeError: in prediction"),
        (lambda: Own(lambda _, y: y / 0.0), "not finite"),
        (lambda: Own(lambda _, y: y + (y - y).abs().sqrt()), "gradient is not finite"),
        (lambda: Own(lambda _, y: y + torch.tensor([-torch.inf, -torch.inf, 0.0])), "loss or gradient is not finite"),
        (lambda: Own(lambda self, y: y * self.scale, scale=nn.Parameter(torch.full((), torch.nan))), "not finite"),
    ],
)
@pytest.mark.parametrize("variational", ["none", "dense"])
def test_modules_refused_when_tried_out(module: Callable[[], nn.Module], message: str, variational: str) -> None:
    with pytest.raises(NetworkError, match=message) as caught:
        try_out(network(module, variational), "mine.py")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("mine.py: ")


class Twofold(nn.Module):
    """A layer that sees each sample once where the batch is of two, and twice else: in two calls, or in one."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.calls = calls

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 2:
            return self.layer(x)
        return self.layer(x) + self.layer(x) if self.calls == 2 else self.layer(torch.cat([x, x]))[: len(x)]


@pytest.mark.parametrize("calls", [1, 2])
def test_layers_are_called_in_the_same_way_for_any_batch(calls: int) -> None:
    with pytest.raises(NetworkError, match=r"^mine.py: calls its layers in another way from batch to batch$"):
        try_out(network(lambda: Twofold(calls), "dense"), "mine.py")


def test_initial_weights_must_follow_from_torchs_generator() -> None:
    own = torch.Generator().manual_seed(0)

    def module() -> nn.Module:
        made = around()
        with torch.no_grad():
            made.get_parameter("0.weight").normal_(generator=own)
        return made

    with pytest.raises(NetworkError, match="initial weights do not follow from torch's generator"):
        try_out(network(module))


@pytest.mark.parametrize("variational", ["none", "dense", "all", "last:1"])
@pytest.mark.parametrize(
    "module",
    [
        lambda: around(Dropout(0.3), nn.GroupNorm(2, 6), nn.ReLU()),
        lambda: around(nn.LayerNorm(6), nn.Tanh()),
        lambda: nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(6, 3)),
        lambda: around(ROWS, nn.TransformerEncoderLayer(2, 1, 4, 0.0, batch_first=True), nn.Flatten()),
        lambda: around(nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, affine=True), nn.Flatten()),
    ],
)
def test_what_works_is_not_refused(module: Callable[[], nn.Module], variational: str) -> None:
    made = network(module, variational)
    try_out(made)
    if variational == "none":
        try_out(SampledPosterior(made))


def test_a_unit_that_rounding_carries_across_a_kink_is_no_dependence_on_others() -> None:
    def near_the_kink(_: object, y: Tensor) -> Tensor:
        rounding = (len(y) - 2) * torch.finfo(y.dtype).eps
        return y + (y - y.detach() + 1e-12 + rounding).relu()

    try_out(network(lambda: Own(near_the_kink)))


@pytest.mark.parametrize("spec", [{"name": "lenet"}, {"name": "mlp"}, {"name": "cnn"}, {"name": "resnet20"}], ids=str)
@pytest.mark.parametrize("variational", ["none", "dense", "all", "last:2"])
def test_built_in_networks_pass(spec: dict[str, str], variational: str) -> None:
    try_out(networks.build(spec, (1, 16, 16), 10, variational, Posterior(), "cpu"))


@pytest.mark.parametrize(
    ("variational", "message"),
    [
        ("dens", "none, dense, all or last:N, as in last:2, got 'dens'"),
        ("last:0", "last:N, as in last:2, got 'last:0'"),
        ("last:3", "has 2 dense or convolution layers, too few for variational: last:3"),
    ],
)
def test_posteriors_that_do_not_fit_are_refused(variational: str, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        network(around, variational)


def test_a_network_without_dense_layers_has_no_dense_posterior() -> None:
    with pytest.raises(NetworkError, match="has 0 dense layers"):
        network(lambda: nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 4), nn.Flatten()), "dense")


def test_a_file_that_fails_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import no_such_module_at_all\ndef build(image_shape, labels):\n    pass\n")
    with pytest.raises(NetworkError, match=r"mine.py: ModuleNotFoundError: No module named"):
        networks.build({"file": str(file)}, (4,), 3, "none", Posterior(), "cpu")


def test_each_network_starts_from_its_own_modules() -> None:
    assert networks.modules({"name": "lenet"}, "dense") == ("bflp.networks.lenet",)
    assert networks.modules({"name": "lenet"}, "all") == ("bflp.networks.plain", "bflp.networks.lenet")
    assert networks.modules({"name": "mlp"}, "none") == ("bflp.networks.plain", "bflp.networks.mlp")
    assert networks.modules({"file": "x.py"}, "dense") == ("bflp.networks.plain",)
