"""Rounds of a grid's cells on random images: what the benchmarks time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bflp.datasets.registry import BUILT_IN
from bflp.engine.inputs import Inputs
from bflp.engine.round import Federation
from bflp.engine.server import select_clients
from bflp.engine.settings import CellSettings
from bflp.engine.work import Broadcast, Task, TrainStack, Work, training_tasks
from bflp.grid.cell import Cell
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.partition.split import split
from bflp.runtime.inputs import Assignment
from bflp.runtime.pool import SerialExecutor
from bflp.runtime.rule import checked_rule

SAMPLE = range(1, 11)  # rounds whose steps are counted: clients differ in size


class Rounds:
    """A cell of the plan on a device. per_client: images of a client on average, which are trained on for one epoch and
    evaluated; None: as many as the data set has, and the epochs of the config.

    Where nothing is left out, in the mean: whole: how many times more steps a round has; tests: more test images;
    samples: training samples that a round passes through the network.
    """

    def __init__(self, plan: Plan, cell: Cell, device: str, per_client: int | None = None) -> None:
        about, given = BUILT_IN[cell.dataset], plan.cell_settings(cell)
        real = CellSettings.of(cell.seed, cell.aggregator, given)
        few = replace(real, training=replace(real.training, local_epochs=1))
        self.settings = real if per_client is None else few
        train = about.train_size if per_client is None else per_client * real.clients
        test = about.test_size if per_client is None else min(about.test_size, per_client)
        draw, shape = np.random.default_rng(0), about.image_shape
        images = [draw.integers(0, 256, (size, *shape), dtype=np.uint8) for size in (train, test)]
        labels = [np.arange(size) % about.labels for size in (train, test, about.train_size)]
        parts, all_parts = (split(each, real.clients, cell.seed, given["partition"])[0] for each in labels[::2])
        offsets = np.cumsum([0, *map(len, parts)])
        self.inputs = Inputs(images[0], labels[0], images[1], labels[1], about.labels, np.concatenate(parts), offsets)
        self.work = Work(self.settings, self.inputs, device)
        rule = checked_rule(Assignment(Job.parse(plan.job(cell)), Path(), Path()))
        self.federation = Federation(self.work, plan.settings.evaluation.ece_bins, rule)
        self.executor = SerialExecutor(self.work)
        self.tasks, self.steps = tasks_of(self.settings, self.inputs.sizes, SAMPLE[0])
        sizes = np.array([len(part) for part in all_parts])
        self.whole = statistics.mean(tasks_of(real, sizes, round_)[1] for round_ in SAMPLE) / self.steps
        self.tests = about.test_size / test
        self.samples = real.training.local_epochs * real.active * about.train_size / real.clients

    def run(self) -> tuple[float, float, float]:
        """Seconds of training, aggregation and evaluation in a round from the initial model."""
        return self.federation.round(self.federation.initial(), SAMPLE[0], self.executor).seconds

    def train(self) -> None:
        """The training of that round alone."""
        self.executor.run(Broadcast(self.work.initial), self.tasks)


def tasks_of(settings: CellSettings, sizes: NDArray[np.int64], round_: int) -> tuple[Sequence[Task], int]:
    """The tasks that train a round, and their steps, of which a stack has those of its largest client."""
    tasks = training_tasks(settings, round_, select_clients(settings, round_, sizes), sizes)
    samples = [sizes[list(task.clients) if isinstance(task, TrainStack) else [task.client]].max() for task in tasks]
    steps = sum(-(-int(most) // settings.training.batch_size) for most in samples)
    return tasks, settings.training.local_epochs * steps
