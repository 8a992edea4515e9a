"""Three clients with the losses l_k(w) = h_k (w - c_k)^2 / 2 of one number w, in the project's own rounds, in float64.

A sample holds its client's h and c, so that each batch gives the whole gradient; clients have 1, 3 and 6 samples.
"""

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch

from bflp.algorithms import fedprox
from bflp.engine.client import client_update
from bflp.engine.inputs import Inputs
from bflp.engine.local import Chosen, Trained
from bflp.engine.round import Federation
from bflp.engine.settings import CellSettings, Training
from bflp.engine.work import Broadcast, Work
from bflp.networks.layout import Layout

CURVATURES, CENTRES, SIZES = np.array([1, 4, 0.5]), np.array([-1, 0.5, 3]), np.array([1, 3, 6])
UNIFORM = 5 / 11  # the minimum of the plain mean of the losses: sum h c / sum h
WEIGHTED = 0.875  # of their mean by data: sum n h c / sum n h
UNEQUAL_STEPS = {"local_epochs": 5, "batch_size": 1}  # 5, 15 and 30
TEN_STEPS = {"local_epochs": 10, "batch_size": 6}


class OneNumber(Layout):
    """No random start."""

    def __init__(self):
        super().__init__({"w": (1,)}, {}, 0)

    def fill(self, tensors, generator):
        pass


class ToyNetwork:
    """A bflp.networks.Network, as far as training asks for it; the inputs are rows (h, c)."""

    layout = OneNumber()

    def gradient(self, vector, inputs, labels, noise, kl_weight, out):
        curvature, distance = inputs[:, 0], vector - inputs[:, 1]
        out.copy_((curvature * distance).mean().reshape(1))
        return (curvature * distance**2).mean() / 2


def solved(network, vector, inputs, labels, settings, round_, client, replay, local):
    """In place of client_update: the minimum of a client's loss with all that the algorithm adds."""
    curvature, centre = inputs[:1, 0], inputs[:1, 1]
    constant, pull = (0.0 if given is None else given for given in (local.constant, local.pull))
    anchor = 0.0 if local.anchor is None else local.anchor
    return Trained((curvature * centre - constant + pull * anchor) / (curvature + pull), 0.0, 1)


class Toy:
    """A federation of the three. algorithm: a module or any object with its functions; None: FedAvg; settings: its own;
    exact: clients solve their problems; training: of the section `training`."""

    def __init__(
        self, algorithm=None, exact=False, weights="data", fraction=1.0, dtype=torch.float64, settings=None, **training
    ):
        chosen = {"learning_rate": 0.01, "momentum": 0.0, "weight_decay": 0.0, **UNEQUAL_STEPS, **training}
        cell = CellSettings(
            seed=3,
            clients=3,
            fraction=fraction,
            rounds=10**9,
            weights=weights,
            training=Training(**chosen),
            every=10**9,
            monte_carlo_samples=1,
            augment=None,
            posterior=None,
            aggregator="none",
            aggregation="exact",
        )
        samples = np.repeat(np.stack([CURVATURES, CENTRES], axis=1), SIZES, axis=0)
        samples = samples.astype(np.float64 if dtype == torch.float64 else np.float32)
        labels = np.zeros(len(samples), dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(SIZES)])
        inputs = Inputs(samples, labels, samples, labels, 1, np.arange(len(samples)), offsets)
        if settings is None and hasattr(algorithm, "Settings"):
            settings = algorithm.Settings()
        self.states = {}
        with mock.patch("bflp.engine.work.network_of", return_value=ToyNetwork()):
            work = Work(cell, inputs, "cpu", Chosen(algorithm, settings), lambda client, _: self.states.get(client, {}))
        self.executor = SimpleNamespace(run=lambda sent, tasks: [work.train(sent, task) for task in tasks])
        self.update = solved if exact else client_update
        self.federation, self.done = Federation(work, 20), 0
        self.server = Broadcast(torch.zeros(1, dtype=dtype))

    @property
    def model(self):
        return float(self.server.model)

    def start(self, model, server=None, clients=()):
        """Begin from a model, the server's state and the clients' states, all plain numbers."""
        tensors = [
            {name: torch.tensor([value]).double() for name, value in each.items()} for each in (server or {}, *clients)
        ]
        self.server = Broadcast(torch.tensor([model], dtype=self.server.model.dtype), tensors[0])
        self.states = dict(enumerate(tensors[1:]))
        return self

    def rounds(self, count):
        """The model after each of the next rounds."""
        models = []
        with mock.patch("bflp.engine.work.client_update", self.update):
            for _ in range(count):
                self.done += 1
                outcome = self.federation.round(self.server, self.done, self.executor)
                self.server, self.states = outcome.server, {**self.states, **outcome.clients}
                models.append(self.model)
        return models


def near(value):
    """To the ten digits that the values here are known to."""
    return pytest.approx(value, rel=0, abs=1e-9)


def held(algorithm, mu=1.0):
    """An algorithm with a server step only, whose clients are FedProx's."""
    return SimpleNamespace(
        local=lambda model, server, client, facts, settings: fedprox.local(
            model, server, client, facts, fedprox.Settings(mu)
        ),
        server=algorithm.server,
    )
