"""The spread that a cell would have if its data said nothing about the variances.

All variational weights start with nearly the same log variance, and the clients of an IID partition have equally many
samples. Without the gradient of the cross entropy one number then stands for all: the KL divergence and weight decay
move it, and the rule combines equal ones. Held against a real cell, this shows what its data add.

How to Combine Variational Bayesian Networks in Federated Learning, arXiv 2206.10897.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bflp.datasets.registry import BUILT_IN
from bflp.grid.cell import Cell
from bflp.settings.rules import load_rule


def covers(cell: Cell) -> bool:
    """Whether one number stands for all weights of the cell, of one of the paper's methods and so of LeNet.

    Not with PPA: the clients' means widen its variance.
    """
    of_paper = cell.model in ("FVBA", "FVBWA") and cell.aggregator in ("EAA", "GAA", "AALV", "CF")
    return of_paper and cell.dataset in BUILT_IN and cell.partition == "iid"


def spread_without_data(cell: Cell, settings: Mapping[str, Any]) -> list[float]:
    """The Euclidean norm of all standard deviations after each round; settings: those in the cell's result."""
    from bflp.networks.lenet import LeNetLayout

    built_in, clients = BUILT_IN[cell.dataset], settings["setup"]["clients"]
    samples = built_in.train_size
    layout = LeNetLayout(built_in.image_shape, built_in.labels, True)
    weights = layout.log_variances.stop - layout.log_variances.start
    log_variance, bounds = settings["posterior"]["log_variance"], settings["posterior"]["log_variance"]["bounds"]
    active = max(1, round(settings["setup"]["fraction"] * clients))
    rule = load_rule(cell.aggregator)
    arithmetic = rule.settings(bounds=tuple(bounds), arithmetic=settings.get("aggregation", "exact"))
    generator = np.random.default_rng(0)  # none of these rules draws

    project = log_variance["enforce"] == "project"
    value = float(np.clip(log_variance["initial"], *bounds)) if project else float(log_variance["initial"])
    spreads = []
    for _ in range(settings["setup"]["rounds"]):
        value = _train(value, samples // clients, settings)
        equal = np.full((active, 1), value)
        _, combined = rule(np.zeros((active, 1)), equal, np.full(active, 1 / active), arithmetic, generator)
        value = float(np.clip(combined[0], *bounds)) if project else float(combined[0])
        spreads.append(math.sqrt(weights * math.exp(value)))
    return spreads


def _train(value: float, samples: int, settings: Mapping[str, Any]) -> float:
    """A client's log variance after its local training: SGD on the KL divergence alone, with weight decay.

    In float32, as in training: weight decay moves a log variance by about ten units in the last place per step, so that
    rounding is part of the result.
    """
    training, posterior = settings["training"], settings["posterior"]
    lower, upper = (np.float32(bound) for bound in posterior["log_variance"]["bounds"])
    project = posterior["log_variance"]["enforce"] == "project"
    precision = np.float32(posterior["prior"]["standard_deviation"] ** -2)
    share, zero = np.float32(0.5 / samples), np.float32(0)  # the KL divergence counts 1 / n in the loss
    decay, factor = np.float32(training["weight_decay"]), np.float32(training["momentum"])
    rate = np.float32(training["learning_rate"])
    log_variance, momentum = np.float32(value), zero
    for _ in range(training["local_epochs"] * math.ceil(samples / training["batch_size"])):
        passes = project or lower < log_variance < upper
        gradient = (np.exp(log_variance) * precision - 1) * share if passes else zero
        momentum = factor * momentum + (gradient + decay * log_variance)
        log_variance = log_variance - rate * momentum
        if project:
            log_variance = min(max(log_variance, lower), upper)
    return float(log_variance)
