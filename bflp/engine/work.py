"""What executes a cell's tasks: training a client, evaluating a part of the test set.

Nothing is kept from one task to the next but buffers, so that it does not matter which process does what.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bflp import networks
from bflp.engine.batches import in_unit_interval
from bflp.engine.client import client_update
from bflp.engine.cuda_graph import Replay
from bflp.engine.inputs import EVALUATION_CHUNK, Inputs, Source
from bflp.engine.local import Chosen, Facts, State, Trained
from bflp.engine.predictions import Floats
from bflp.engine.settings import CellSettings
from bflp.networks import Network
from bflp.networks.posterior import Posterior
from bflp.rng import torch_generator

# Each with noise of its own, so that none changes another's numbers.
NOISE: dict[Source, str] = {
    "test": "evaluation noise",
    "out of distribution": "out-of-distribution noise",
    "held out": "held-out noise",
}


@dataclass(frozen=True)
class Train:
    """Train a client in a round."""

    round: int
    client: int

    def __str__(self) -> str:
        return f"round {self.round}, client {self.client}"


@dataclass(frozen=True)
class Evaluate:
    """Predict one chunk of some images. samples: Monte Carlo samples."""

    round: int
    chunk: int
    samples: int
    source: Source = "test"

    def __str__(self) -> str:
        return f"the evaluation of round {self.round}"


@dataclass(frozen=True)
class TrainStack:
    """Train several clients in a round at once. width: of the stack, which all rounds of a cell have in common; where
    the clients are fewer, the rest of it is idle."""

    round: int
    clients: tuple[int, ...]
    width: int

    def __str__(self) -> str:
        return f"round {self.round}, clients {', '.join(map(str, self.clients))}"


Task = Train | TrainStack | Evaluate


@dataclass(frozen=True)
class Broadcast:
    """What the server sends to the clients of a round: its model [D], and of its algorithm's state what they need."""

    model: Tensor
    state: State = field(default_factory=dict)

    @property
    def tensors(self) -> list[Tensor]:
        """All that it sends to a client."""
        return [self.model, *self.state.values()]


class Answer(NamedTuple):
    """What a client's training gives, on the CPU: the parameters [D] that it sends, mean loss, steps, message, its new
    state, and in the last round the parameters [D] that it trained, where it sends others or none."""

    vector: Tensor
    loss: float
    steps: int
    message: State
    state: State
    trained: Tensor | None = None

    @property
    def local_model(self) -> Tensor:
        """The parameters [D] that the client trained, after the last round."""
        return self.vector if self.trained is None else self.trained

    @property
    def tensors(self) -> list[Tensor]:
        """All that the client sends."""
        return [self.vector, *self.message.values()]


def no_state(client: int, round_: int) -> State:
    """The state of a client before a round, of algorithms whose clients remember nothing."""
    return {}


class Work:
    """Executes the tasks of one cell on one device. states: gives a client's state before a round."""

    def __init__(
        self,
        settings: CellSettings,
        inputs: Inputs,
        device: str,
        algorithm: Chosen | None = None,
        states: Callable[[int, int], State] = no_state,
    ) -> None:
        # One thread each: the parallelism is over clients, and results must not depend on thread counts.
        torch.set_num_threads(1)
        if device != "cpu":
            # What names no device is then on the cell's card, too.
            torch.cuda.set_device(torch.device(device).index or 0)
            # Not on the CPU, where all that is used here is deterministic: this imports torch's compiler, a second.
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        self.settings, self.inputs, self.device = settings, inputs, device
        self.algorithm, self.states = algorithm or Chosen(), states
        self.network = network_of(settings, inputs.train_inputs.shape[1:], inputs.labels, device)
        self.layout = self.network.layout
        self.replay = None if device == "cpu" else Replay()
        self._stack: Any = None

    @cached_property
    def initial(self) -> Tensor:
        """The server's model [D] before the first round."""
        posterior = self.settings.posterior
        value = posterior.initial_log_variance if posterior else 0.0
        model = self.layout.initial_vector(value, torch_generator(self.settings.seed, "initial model"))
        if posterior and posterior.enforce == "project":
            model[self.layout.log_variances].clamp_(*posterior.bounds)
        return model

    def facts(self, round_: int, client: int | None = None) -> Facts:
        """Of a client; None: of the server."""
        settings, sizes = self.settings, self.inputs.sizes
        samples = int(sizes.sum() if client is None else sizes[client])
        share = samples / int(sizes.sum()) if settings.weights == "data" else 1 / int(np.count_nonzero(sizes))
        posterior = settings.posterior
        prior = (posterior.prior_mean, posterior.prior_standard_deviation**-2) if posterior else (0.0, 0.0)
        clients = int(np.count_nonzero(sizes))
        training, known = settings.training, replace(settings, rounds=0)
        return Facts(self.layout, training, clients, samples, share, round_, prior, self.initial, known, client)

    def train(self, broadcast: Broadcast, task: Train) -> Answer:
        """Local training of one client from the server's model. Raises NotFiniteError."""
        inputs, settings = self.inputs, self.settings
        indices = inputs.indices[inputs.offsets[task.client] : inputs.offsets[task.client + 1]]
        own = torch.from_numpy(np.array(inputs.train_inputs[indices])).to(self.device)
        labels = torch.from_numpy(inputs.train_labels[indices]).to(self.device)
        model, server = broadcast.model.to(self.device), self._here(broadcast.state)
        before, facts = self._here(self.states(task.client, task.round)), self.facts(task.round, task.client)
        local = self.algorithm.local(model, server, before, facts)
        start = model if local.start is None else local.start
        further = (own, labels, settings, task.round, task.client, self.replay, local)
        if settings.sampled:
            assert settings.posterior is not None
            # Not by an import statement: each way to a posterior then concerns only its own cells.
            kind = importlib.import_module(f"bflp.engine.{settings.posterior.kind}")
            inner = self.network.inner  # type: ignore[attr-defined]
            trained = kind.train(inner, start[self.layout.means], start[self.layout.log_variances], *further)
        else:
            trained = client_update(self.network, start, *further)
        return self._answer(model, trained, server, before, facts, local.sent)

    def train_stack(self, broadcast: Broadcast, task: TrainStack) -> list[Answer]:
        """Local training of several clients at once, of an algorithm that changes nothing in it. Raises
        DivergedError."""
        model, server = broadcast.model.to(self.device), self._here(broadcast.state)
        if self._stack is None:
            # Not by an import statement: it concerns only the cells that have a stack.
            stack = importlib.import_module("bflp.engine.stack")
            self._stack = stack.Stack(self.network, self.settings, self.inputs, task.width)
        answers = []
        for client, trained in zip(task.clients, self._stack.train(model, task.round, task.clients), strict=True):
            before, facts = self._here(self.states(client, task.round)), self.facts(task.round, client)
            answers.append(self._answer(model, trained, server, before, facts))
        return answers

    def _answer(
        self, model: Tensor, trained: Trained, server: State, before: State, facts: Facts, sent: Tensor | None = None
    ) -> Answer:
        message, state = self.algorithm.report(model, trained, server, before, facts)
        vector = trained.vector if sent is None else sent
        vector = vector if self.algorithm.sends_parameters else vector[:0]
        is_last = facts.round == self.settings.rounds
        own = trained.vector.cpu() if is_last and vector is not trained.vector else None
        return Answer(vector.cpu(), trained.loss, trained.steps, _on_cpu(message), _on_cpu(state), own)

    def evaluate(self, broadcast: Broadcast, task: Evaluate) -> tuple[Floats, Floats]:
        """Probabilities [n, L] and mean entropies [n] (of the Monte Carlo samples) of one chunk."""
        part = self.inputs.part(task.source, task.chunk)
        inputs = in_unit_interval(torch.from_numpy(part).to(self.device))
        generator = torch_generator(self.settings.seed, NOISE[task.source], task.round, task.chunk, device=self.device)
        model = broadcast.model.to(self.device)
        probabilities, entropies = self.network.predict(model, inputs, task.samples, generator)
        return probabilities.cpu().numpy(), entropies.cpu().numpy()

    def _here(self, state: State) -> State:
        return {name: tensor.to(self.device) for name, tensor in state.items()}


def _on_cpu(state: State) -> State:
    return {name: tensor.cpu() for name, tensor in state.items()}


def network_of(settings: CellSettings, input_shape: tuple[int, ...], labels: int, device: str = "cpu") -> Network:
    """The cell's network. Raises NetworkError where the data do not fit it."""
    posterior = settings.posterior
    given = Posterior()
    if posterior is not None:
        prior = (posterior.prior_mean, posterior.prior_standard_deviation)
        given = Posterior(*prior, posterior.bounds, posterior.enforce)
    variational = posterior.variational if posterior and not settings.sampled else "none"
    network = networks.build(settings.network, input_shape, labels, variational, given, device)
    if not settings.sampled:
        return network
    # By name, as the ways to a posterior.
    found: Network = importlib.import_module("bflp.networks.sampled").SampledPosterior(network)
    return found


def training_tasks(
    settings: CellSettings, round_: int, clients: list[int], sizes: NDArray[np.int64]
) -> list[Train] | list[TrainStack]:
    """The tasks that together train the clients of a round: one by one, or in as few stacks as the setting allows, of
    the same width, where clients of like size are together."""
    most = settings.training.stack
    if most is None:
        return [Train(round_, client) for client in clients]
    ordered = sorted(clients, key=lambda client: -sizes[client])
    width = -(-len(ordered) // -(-len(ordered) // most))
    starts = range(0, len(ordered), width)
    return [TrainStack(round_, tuple(ordered[start : start + width]), width) for start in starts]


def evaluation_tasks(images: int, round_: int, samples: int, source: Source = "test") -> list[Evaluate]:
    """The tasks that together evaluate so many images."""
    return [Evaluate(round_, chunk, samples, source) for chunk in range(-(-images // EVALUATION_CHUNK))]
