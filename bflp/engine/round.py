"""A communication round: select clients, train them, combine their models, evaluate.

A pure step from one state of a federation to the next. Who executes the tasks (this process, or a pool) is hidden
behind `Executor` and never changes a result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bflp.engine.errors import DivergedError, NotFiniteError
from bflp.engine.local import Report, State
from bflp.engine.metrics import accuracy, ece, nll, spread
from bflp.engine.predictions import HELD_OUT, Floats, Predictions
from bflp.engine.server import Aggregator, RuleCall, aggregation_weights, select_clients
from bflp.engine.work import Answer, Broadcast, Task, TrainStack, Work, evaluation_tasks, training_tasks

# Bytes of a number on its way: float32, as models are; states are float64 for the sake of sums that never end.
NUMBER = 4


class Executor(Protocol):
    """Runs tasks on what the server sends; gives results in the order of the tasks.

    Raises DivergedError for a client.
    """

    def run(self, broadcast: Broadcast, tasks: Sequence[Task]) -> list[Any]: ...


class Outcome(NamedTuple):
    """What a round gives. server: the model and the algorithm's state; clients: new states by client; curves: the
    metrics of CURVES, and where samples are held out, those of HELD_OUT as the mapping `held_out`; None where the round
    is not evaluated; seconds: of local training, aggregation, evaluation; traffic: bytes that the round's clients
    together send and receive, but for counts of samples and steps."""

    server: Broadcast
    clients: dict[int, State]
    curves: dict[str, Any] | None
    seconds: tuple[float, float, float]
    traffic: tuple[int, int]


class Federation:
    """The rounds of one cell. bins: of the curves' ECE, which changes no model; rule: None where there is none."""

    def __init__(self, work: Work, bins: int, rule: RuleCall | None = None) -> None:
        self.work, self.bins = work, bins
        self.settings, self.inputs, self.layout = work.settings, work.inputs, work.layout
        self.sizes = work.inputs.sizes
        self.aggregator = Aggregator(self.settings, self.layout, rule)

    def initial(self) -> Broadcast:
        """What the server has before the first round."""
        return Broadcast(self.work.initial.clone())

    def round(self, server: Broadcast, round_: int, executor: Executor) -> Outcome:
        """From what the server has before the round to what it has after it. Raises DivergedError, and what the rule
        raises."""
        clients = select_clients(self.settings, round_, self.sizes)
        sent = Broadcast(server.model, self.work.algorithm.broadcast(server.state))
        began = time.perf_counter()
        answers = self._trained(sent, round_, clients, executor)
        trained_at = time.perf_counter()
        try:
            after = self._combined(server, clients, answers, round_)
        except NotFiniteError as error:
            raise DivergedError(round_, None, str(error)) from None
        combined_at = time.perf_counter()
        curves = self.curves(after.model, round_, executor) if self.is_evaluated(round_) else None
        seconds = (trained_at - began, combined_at - trained_at, time.perf_counter() - combined_at)
        states = {client: answer.state for client, answer in zip(clients, answers, strict=True)}
        up = [tensor for answer in answers for tensor in answer.tensors]
        traffic = (self._bytes(up), len(clients) * self._bytes(sent.tensors))
        return Outcome(after, states, curves, seconds, traffic)

    def _trained(self, sent: Broadcast, round_: int, clients: list[int], executor: Executor) -> list[Answer]:
        """The clients' answers, in their order."""
        tasks = training_tasks(self.settings, round_, clients, self.sizes)
        results = executor.run(sent, tasks)
        found: dict[int, Answer] = {}
        for task, result in zip(tasks, results, strict=True):
            found.update(zip(task.clients, result, strict=True) if isinstance(task, TrainStack) else ())
        return [found[client] for client in clients] if found else results

    def _combined(self, server: Broadcast, clients: list[int], answers: list[Answer], round_: int) -> Broadcast:
        algorithm, sizes = self.work.algorithm, self.sizes[clients]
        if not algorithm.has_server_step:
            vectors = np.stack([answer.vector.numpy() for answer in answers])
            return Broadcast(self.aggregator.combine(vectors, sizes, round_, server.model), server.state)
        weights = aggregation_weights(sizes, self.settings.weights == "data")
        facts = [self.work.facts(round_, client) for client in clients]
        parts = zip(clients, answers, weights, facts, strict=True)
        reports = [
            Report(client, answer.vector, float(weight), fact.share, fact.samples, answer.steps, answer.message)
            for client, answer, weight, fact in parts
        ]
        model, state = algorithm.server(server.model, reports, server.state, self.work.facts(round_))
        if model.shape != server.model.shape:
            wrong, right = tuple(model.shape), tuple(server.model.shape)
            raise ValueError(f"the algorithm's `server` must return a model of shape {right}, not {wrong}")
        posterior = self.settings.posterior
        model = model.to(server.model.dtype)
        if posterior and posterior.enforce == "project":
            model[self.layout.log_variances].clamp_(*posterior.bounds)
        if not bool(torch.isfinite(model).all()):
            raise NotFiniteError("the algorithm's server step made entries that are not finite")
        return Broadcast(model, state)

    def _bytes(self, tensors: Sequence[Tensor]) -> int:
        """What tensors take on their way; where zeros are left out, with a bit for each entry that says which are."""
        if not self.work.algorithm.sparse:
            return NUMBER * sum(tensor.numel() for tensor in tensors)
        return sum(NUMBER * int(tensor.count_nonzero()) + -(-tensor.numel() // 8) for tensor in tensors)

    def is_evaluated(self, round_: int) -> bool:
        """Whether the model is evaluated after a round."""
        return round_ % self.settings.every == 0 or round_ == self.settings.rounds

    def curves(self, model: Tensor, round_: int, executor: Executor) -> dict[str, Any]:
        """What Outcome.curves has of the model [D] after a round. Raises DivergedError."""
        predictions = predict(self, model, round_, executor, self.settings.monte_carlo_samples, self.bins)
        measured = _measured(predictions, round_)
        if self.inputs.held_out is not None:
            held_out = predict_held_out(self, model, round_, executor, self.settings.monte_carlo_samples, self.bins)
            found = _measured(held_out, round_)
            measured["held_out"] = {name: found[name] for name in HELD_OUT}
        return measured


def _measured(predictions: Predictions, round_: int) -> dict[str, Any]:
    measured = {
        "accuracy": accuracy.metric(predictions),
        "ece": ece.metric(predictions),
        "nll": nll.metric(predictions),
        "spread": spread.metric(predictions),
    }
    wrong = [name for name, value in measured.items() if value is not None and not math.isfinite(value)]
    if wrong:
        raise DivergedError(round_, None, f"evaluation: {', '.join(wrong)} not finite")
    return measured


def predict(
    federation: Federation, model: Tensor, round_: int, executor: Executor, samples: int, bins: int, ood: bool = False
) -> Predictions:
    """A model's predictions on the whole test set; with `ood` on the second data set, too."""
    inputs, layout = federation.inputs, federation.layout
    probabilities, entropies = _predictions(model, evaluation_tasks(len(inputs.test_labels), round_, samples), executor)
    elsewhere = None
    if ood and inputs.ood_inputs is not None:
        tasks = evaluation_tasks(len(inputs.ood_inputs), round_, samples, "out of distribution")
        elsewhere, _ = _predictions(model, tasks, executor)
    log_variances = model[layout.log_variances].numpy() if federation.settings.posterior else None
    return Predictions(probabilities, inputs.test_labels, bins, log_variances, entropies, elsewhere)


def predict_held_out(
    federation: Federation, model: Tensor, round_: int, executor: Executor, samples: int, bins: int
) -> Predictions:
    """A model's predictions on the samples that are held out of the clients, of a cell that has some."""
    inputs = federation.inputs
    assert inputs.held_out is not None
    tasks = evaluation_tasks(len(inputs.held_out), round_, samples, "held out")
    probabilities, entropies = _predictions(model, tasks, executor)
    return Predictions(probabilities, inputs.train_labels[inputs.held_out], bins, None, entropies)


def _predictions(model: Tensor, tasks: Sequence[Task], executor: Executor) -> tuple[Floats, NDArray[np.float32]]:
    """Probabilities [N, L] and mean entropies [N], the chunks put together."""
    probabilities, entropies = zip(*executor.run(Broadcast(model), tasks), strict=True)
    return np.concatenate(probabilities), np.concatenate(entropies)
