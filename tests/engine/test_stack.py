"""Clients trained at once: each gets what it gets alone, whoever is beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from engine.tape import Tape, recorded
from engine.test_client_update import ADDRESS, CLIENT, ROUND, SAMPLES, SEED, plain_training
from numpy.typing import NDArray
from torch import Tensor

from bflp.engine.client import client_update
from bflp.engine.errors import DivergedError
from bflp.engine.inputs import Inputs
from bflp.engine.round import Federation
from bflp.engine.settings import CellSettings, PosteriorSettings, Training
from bflp.engine.stack import Stack
from bflp.engine.work import Broadcast, TrainStack, Work, training_tasks
from bflp.networks.lenet import LeNet, LeNetLayout
from bflp.networks.posterior import Posterior
from bflp.networks.stacked_lenet import StackedLeNet
from bflp.rng import torch_generator

SHAPE, LABELS, PRIOR, BOUNDS = (1, 16, 16), 3, (0.1, 0.7), (-4.0, 2.0)
TRAINING: dict[str, Any] = {"batch_size": 8, "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.01}
# Smaller last batches, whole ones only, one batch that is smaller than the others', one sample; a client without data.
SIZES = [40, 5, SAMPLES, 1, 16, 0]
CLIENTS = [2, 4, 0, 3, 1]
KINDS = [(False, "clamp"), (True, "clamp"), (True, "project")]


class Case:
    """A federation of small images, and a model before the round."""

    def __init__(
        self,
        variational: bool = True,
        enforce: Any = "clamp",
        sizes: list[int] = SIZES,
        augment: dict[str, Any] | None = None,
        dtype: torch.dtype = torch.float64,
        labels: int = LABELS,
        **training: Any,
    ) -> None:
        self.dtype = dtype
        self.layout = LeNetLayout(SHAPE, labels, variational)
        self.posterior = Posterior(*PRIOR, BOUNDS, enforce)
        gaussian = PosteriorSettings("variational", *PRIOR, -3.0, BOUNDS, enforce, "dense") if variational else None
        chosen = Training(**{"local_epochs": 2, **TRAINING, **training})
        clients, active = len(sizes), 5 / len(sizes)
        self.settings = CellSettings(SEED, clients, active, 9, "data", chosen, 1, 1, augment, gaussian, "none", "exact")
        draw, samples = np.random.default_rng(0), sum(sizes)
        images = draw.integers(0, 256, (samples, *SHAPE), dtype=np.uint8)
        classes = draw.integers(0, labels, samples)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.inputs = Inputs(images, classes, images[:9], classes[:9], labels, draw.permutation(samples), offsets)
        self.network = LeNet(self.layout, self.posterior, "cpu")
        generator = torch.Generator().manual_seed(0)
        self.model = self.layout.initial_vector(0.0, generator).to(dtype)
        lowest = BOUNDS[0] - (1 if enforce == "clamp" else 0)
        self.model[self.layout.log_variances].uniform_(lowest, -1.0, generator=generator)

    def data(self, client: int) -> tuple[Tensor, Tensor]:
        rows = self.inputs.indices[self.inputs.offsets[client] : self.inputs.offsets[client + 1]]
        return torch.from_numpy(self.inputs.train_inputs[rows]), torch.from_numpy(self.inputs.train_labels[rows])

    def stack(self, width: int) -> Stack:
        return Stack(self.network, self.settings, self.inputs, width, self.dtype)

    def check(self, stack: Stack, clients: list[int], round_: int = ROUND, tolerance: float = 1e-12) -> None:
        """Each of the clients moves as it does alone."""
        for client, found in zip(clients, stack.train(self.model, round_, clients), strict=True):
            alone = client_update(self.network, self.model, *self.data(client), self.settings, round_, client)
            moved = torch.linalg.norm(alone.vector - self.model)
            assert moved > 0.01
            assert torch.linalg.norm(found.vector - alone.vector) < tolerance * moved
            assert found.loss == pytest.approx(alone.loss, rel=1e-5)
            assert found.steps == alone.steps


@pytest.mark.parametrize(("variational", "enforce"), KINDS, ids=str)
def test_a_slice_against_a_plain_loop(variational: bool, enforce: str) -> None:
    """The client of the plain loop's address, among others: torch's SGD, autograd, standard layers."""
    case = Case(variational, enforce)
    found = case.stack(5).train(case.model, ROUND, CLIENTS)[CLIENTS.index(CLIENT)]
    images, labels = case.data(CLIENT)
    training = {**TRAINING, "local_epochs": 2}
    assert (case.settings.seed, ROUND, CLIENT) == ADDRESS
    expected, loss = plain_training(case.layout, case.posterior, case.model, images, labels, training)
    assert torch.linalg.norm(found.vector - expected) < 1e-10 * torch.linalg.norm(expected - case.model)
    assert found.loss == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize(
    "further",
    [
        {},
        {"augment": {"crop_padding": 2, "flip_probability": 0.5}},
        {"clip_norm": 0.5},
        {"learning_rate_decay": 0.5},
        {"batch_size": 100},
        {"labels": 901},  # so many that noise is drawn batch by batch
    ],
    ids=str,
)
@pytest.mark.parametrize(("variational", "enforce"), KINDS, ids=str)
def test_each_client_gets_what_it_gets_alone(variational: bool, enforce: str, further: dict[str, Any]) -> None:
    case = Case(variational, enforce, **further)
    case.check(case.stack(5), CLIENTS)


def test_single_precision() -> None:
    case = Case(dtype=torch.float32)
    case.check(case.stack(5), CLIENTS, tolerance=1e-5)


def test_a_stack_of_one_and_one_that_is_partly_idle() -> None:
    case = Case()
    for width, clients in ((1, [2]), (1, [1]), (5, [2]), (5, [3, 0])):
        case.check(case.stack(width), clients)


@pytest.mark.parametrize("variational", [False, True])
def test_one_recording_serves_all_clients_and_rounds(variational: bool) -> None:
    """What is recorded of the first step, played for other clients in other numbers and another round's rate."""
    augment = {"crop_padding": 2, "flip_probability": 0.5}
    case = Case(variational, augment=augment, learning_rate_decay=0.5, clip_norm=0.5)
    stack = case.stack(3)
    stack.run = recorded(stack.step)
    for round_, clients in ((1, [2, 0, 3]), (2, [1, 4, 2]), (3, [0]), (2, [1, 4, 2])):
        case.check(stack, clients, round_)


@pytest.mark.parametrize("variational", [False, True])
def test_a_step_of_many_has_as_many_operations_as_that_of_one(variational: bool) -> None:
    def operations(width: int) -> int:
        case = Case(variational, sizes=[9] * width)
        stack = case.stack(width)
        stack.train(case.model, 1, range(width))
        with Tape() as tape:
            stack.step()
        return len(tape.operations)

    assert operations(1) == operations(2) == operations(40)


def test_a_client_that_diverged_leaves_the_others_alone() -> None:
    case = Case()
    network = StackedLeNet(case.network, 3, 4, case.model)
    generator = torch.Generator().manual_seed(1)
    vectors, shares = case.model.repeat(3, 1), torch.full((3, 4), 0.25).double()
    images = torch.rand((3, 4, *SHAPE), generator=generator)
    labels, noise = torch.zeros((3, 4), dtype=torch.int64), torch.randn((3, 4, case.layout.noise_size))

    def gradients() -> tuple[Tensor, Tensor]:
        out = torch.empty_like(vectors)
        return network.gradient(vectors, images, labels, noise, torch.ones(3, 1).double(), shares, out), out

    losses, expected = gradients()
    vectors[1] = torch.nan
    broken, found = gradients()
    for client in (0, 2):
        assert torch.equal(found[client], expected[client]) and broken[client] == losses[client]
    assert torch.isnan(found[1]).any() and torch.isnan(broken[1])


def test_divergence_names_round_and_client() -> None:
    case = Case(learning_rate=1e200)
    with pytest.raises(DivergedError) as raised:
        case.stack(3).train(case.model, 7, [2, 0, 1])
    assert (raised.value.round, raised.value.client) == (7, 2)


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (9, [(0, 4, 2, 5, 3)]),
        (5, [(0, 4, 2, 5, 3)]),
        (4, [(0, 4, 2), (5, 3)]),
        (2, [(0, 4), (2, 5), (3,)]),
        (1, [(0,), (4,), (2,), (5,), (3,)]),
    ],
)
def test_a_round_is_cut_into_stacks_of_one_width(most: int, expected: list[tuple[int, ...]]) -> None:
    """The largest first; of equal ones the smaller number."""
    settings = Case(stack=most).settings
    tasks = training_tasks(settings, 3, [0, 2, 3, 4, 5], np.array([50, 9, 20, 1, 40, 20]))
    assert all(isinstance(task, TrainStack) and task.round == 3 for task in tasks)
    assert [task.clients for task in tasks if isinstance(task, TrainStack)] == expected
    assert {task.width for task in tasks if isinstance(task, TrainStack)} == {len(expected[0])}


def test_a_hundred_clients_of_cifar10_fit_a_small_card() -> None:
    """All that a stack holds and all that a step makes, counted as if nothing were freed."""

    def bytes_of(clients: int) -> int:
        layout = LeNetLayout((3, 32, 32), 10, True)
        images, offsets = np.zeros((500 * clients, 3, 32, 32), dtype=np.uint8), np.arange(clients + 1) * 500
        labels = np.zeros(500 * clients, dtype=np.int64)
        data = Inputs(images, labels, images, labels, 10, np.arange(500 * clients), offsets)
        augment = {"crop_padding": 4, "flip_probability": 0.5}
        settings = Case(augment=augment, batch_size=64).settings
        with Tape() as tape:
            Stack(LeNet(layout, Posterior(), "cpu"), settings, data, clients).step()
        return sum(tape.storages().values())

    each = bytes_of(2) - bytes_of(1)
    assert 10e6 < each < 30e6
    assert 100 * each < 2.5e9


class Serial:
    """Runs a round's tasks on a Work that is given."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def run(self, sent: Broadcast, tasks: Any) -> list[Any]:
        kinds = {"Train": self.work.train, "TrainStack": self.work.train_stack, "Evaluate": self.work.evaluate}
        return [kinds[type(task).__name__](sent, task) for task in tasks]  # type: ignore[operator]


def test_a_few_of_ten_thousand_clients() -> None:
    """Two rounds of five, of one to three samples: the model moves as without a stack, the buffers are small."""
    sizes: NDArray[np.int64] = np.random.default_rng(2).integers(1, 4, 10_000)
    models = {}
    for most in (None, 3):
        case = Case(sizes=sizes.tolist(), stack=most)
        settings = replace(case.settings, fraction=5 / 10_000)
        work = Work(settings, case.inputs, "cpu")
        federation = Federation(work, 10, lambda means, log_variances, *_: (means.mean(0), log_variances.mean(0)))
        server = federation.initial()
        for round_ in (1, 2):
            server = federation.round(server, round_, Serial(work)).server
        models[most] = server.model
        if most:
            assert work._stack.inputs.shape == (9, *SHAPE)
    moved = torch.linalg.norm(models[None] - work.initial)
    assert moved > 0.1
    assert 0 < torch.linalg.norm(models[3] - models[None]) < 1e-4 * moved


def test_draws_come_from_the_client_s_own_addresses() -> None:
    """Order, noise and augmentation of one do not depend on who else is there: only rounding may."""
    case = Case(augment={"crop_padding": 2, "flip_probability": 0.5})
    stack = case.stack(5)
    stack.train(case.model, ROUND, CLIENTS)
    start = int(stack.first[CLIENTS.index(CLIENT)])
    assert stack.noise is not None
    noises = torch_generator(SEED, "training noise", ROUND, CLIENT)
    shuffling = torch_generator(SEED, "shuffling", ROUND, CLIENT)
    for _ in range(2):  # epochs
        noise = torch.randn((SAMPLES, case.layout.noise_size), generator=noises)
        order = torch.randperm(SAMPLES, generator=shuffling)
    assert torch.equal(stack.noise[start : start + SAMPLES], noise)
    assert torch.equal(stack.order[start : start + SAMPLES] - start, order)
