"""The wall: what can change a cell's number knows nothing of settings, runtime or reports, so that their edits train
nothing again; and what runs is what the fingerprint covers."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bflp import aggregators, algorithms
from bflp.engine.metrics.registry import filed
from bflp.fingerprint import import_closure, module_path
from bflp.grid.coverage import (
    PREPARE_MODULES,
    evaluation_modules,
    outside_files,
    partition_modules,
    training_modules,
)
from bflp.grid.plan import Plan
from bflp.settings.algorithms import algorithm_module
from bflp.settings.schema import Settings

PROJECT = Path(__file__).resolve().parents[2]
PAPER: dict[str, Any] = yaml.safe_load((PROJECT / "config.yaml").read_text(encoding="utf-8"))
# Rooms, and single modules, that may hold what changes a number.
INSIDE = [f"bflp.{room}" for room in ("engine", "networks", "aggregators", "algorithms", "partition")]
INSIDE += ["bflp.rng", "bflp.datasets.convert"]
# The last only describes ranges of a rule's settings.
LIBRARIES = {"numpy", "torch", "scipy", "annotated_types"}
STRATEGIES = [file.stem for file in PROJECT.glob("bflp/partition/*.py") if "\ndef split(" in file.read_text("utf-8")]
FILED_METRICS = filed()


def in_the_wall(module: str) -> bool:
    """Or a package that holds a room, such as bflp itself."""
    return any(f"{module}.".startswith(f"{room}.") or room.startswith(f"{module}.") for room in INSIDE)


def plan_of_everything() -> Plan:
    """The paper's grid with every rule, and with a method for every algorithm."""
    methods = {
        f"{name.upper()}-{posterior}": {"algorithm": name, "posterior": posterior}
        for name in algorithms.names()
        for posterior in getattr(algorithm_module({"name": name}), "KINDS", ("none", "variational"))
    }
    methods["STACKED"] = {"base": "FVBWA", "training": {"stack": 5}}
    grid = {**PAPER["grid"], "aggregators": aggregators.names(), "models": [*PAPER["grid"]["models"], *methods]}
    return Plan(Settings.parse({**PAPER, "grid": grid, "models": methods}))


PLANS = {"paper": Plan(Settings.parse(PAPER)), "everything": plan_of_everything()}


@pytest.mark.parametrize("name", PLANS)
def test_what_a_cell_depends_on_lies_within_the_wall(name: str) -> None:
    plan = PLANS[name]
    for cell in plan.cells:
        if cell.seed == plan.settings.grid.seeds[0]:
            job = json.loads(plan.job(cell))
            for modules in (training_modules(job), evaluation_modules(job, FILED_METRICS)):
                assert {module for module in import_closure(modules) if not in_the_wall(module)} == set(), cell


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_partition_depends_on_lies_within_the_wall(strategy: str) -> None:
    closure = import_closure(partition_modules(strategy))
    assert f"bflp.partition.{strategy}" in closure
    assert {module for module in closure if not in_the_wall(module)} == set()


def test_what_prepared_data_depend_on_lies_within_the_wall() -> None:
    assert {module for module in import_closure(PREPARE_MODULES) if not in_the_wall(module)} == set()


def test_the_wall_has_few_libraries() -> None:
    """No pydantic, no pandas: what validates and what shows changes no number."""
    plan = PLANS["everything"]
    jobs = [json.loads(plan.job(cell)) for cell in plan.cells if cell.seed == plan.settings.grid.seeds[0]]
    covered = set(import_closure(PREPARE_MODULES))
    for strategy in STRATEGIES:
        covered |= import_closure(partition_modules(strategy))
    for job in jobs:
        covered |= import_closure(training_modules(job)) | import_closure(evaluation_modules(job, FILED_METRICS))
    assert len(covered) > 20
    for module in covered:
        for node in ast.walk(ast.parse((PROJECT / module_path(module)).read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            tops = {name.partition(".")[0] for name in names}
            assert tops <= {"bflp", "__future__", *LIBRARIES, *sys.stdlib_module_names}, (module, tops)


# Trains and evaluates a cell by the engine alone, and tells what it had loaded of this project after each.
BY_THE_ENGINE_ALONE = """
import importlib, json, sys
import numpy as np

job = json.loads(sys.argv[1])

def loaded():
    return sorted(name for name in sys.modules if name.partition(".")[0] == "bflp")

from bflp.engine.round import Federation
from bflp.engine.settings import CellSettings
from bflp.engine.inputs import Inputs
from bflp.engine.work import Train, TrainStack, Work
from bflp.partition.split import make_parts
from bflp.rng import numpy_generator

cell, given = job["cell"], job["settings"]
settings = CellSettings.of(cell["seed"], cell["aggregator"], given)
generator = np.random.default_rng(0)
images, labels = generator.integers(0, 256, (60, 1, 16, 16), dtype=np.uint8), np.arange(60) % 3
partition = given["partition"]
parts = make_parts(labels, settings.clients, partition["strategy"], partition, numpy_generator(0, "partition"))
offsets = np.cumsum([0, *map(len, parts)])
work = Work(settings, Inputs(images, labels, images, labels, 3, np.concatenate(parts), offsets), "cpu")

class Serial:
    def run(self, sent, tasks):
        kinds = {Train: work.train, TrainStack: work.train_stack}
        return [kinds.get(type(task), work.evaluate)(sent, task) for task in tasks]

rule = None
if cell["aggregator"] != "none":
    module = importlib.import_module(f"bflp.aggregators.{cell['aggregator'].lower()}")
    from bflp.aggregators import AggregationSettings
    own = getattr(module, "Settings", AggregationSettings)(**given.get("rule", {}))
    rule = lambda means, variances, weights, draws, *rest: module.aggregate(means, variances, weights, own, draws)

federation = Federation(work, 10, rule)
server = federation.initial()
for round_ in range(1, settings.rounds + 1):
    outcome = federation.round(server, round_, Serial())
    assert not np.array_equal(outcome.server.model.numpy(), server.model.numpy())
    server = outcome.server
assert set(outcome.curves) == {"accuracy", "ece", "nll", "spread"}
trained = loaded()
from bflp.engine.evaluation import evaluate
assert evaluate(federation, server.model, Serial(), 2, 10)[1]["final"]["accuracy"] == outcome.curves["accuracy"]
print(json.dumps([trained, loaded()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "rule", "partition", "augment", "stack"),
    [
        pytest.param("FED", "none", "iid", None, None, marks=pytest.mark.slow),
        ("FVBWA", "PPA", "noniid", {"crop_padding": 2}, None),
        pytest.param("FVBA", "EAA", "iid", None, 2, marks=pytest.mark.slow),
    ],
)
def test_the_engine_alone_trains_a_cell_and_loads_what_is_covered(
    model: str, rule: str, partition: str, augment: dict[str, Any] | None, stack: int | None
) -> None:
    grid = {"datasets": ["fmnist"], "partitions": [partition], "clients": [2], "models": [model], "seeds": [0]}
    config = {
        "grid": {**grid, "aggregators": [] if rule == "none" else [rule]},
        "datasets": {"fmnist": {"augment": augment}},
        "partitions": {"iid": {"strategy": "iid"}, "noniid": {"strategy": "dirichlet", "alpha": 5.0}},
        "setups": {2: {"fraction": 1.0, "rounds": 2}},
        "training": {"local_epochs": 1, "stack": stack},
        "evaluation": {"monte_carlo_samples": 2},
    }
    plan = Plan(Settings.parse(config))
    text = plan.job(plan.cells[0])
    command = [sys.executable, "-c", BY_THE_ENGINE_ALONE, text]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    job = json.loads(text)
    trained, evaluated = map(set, json.loads(done.stdout))
    training = import_closure(training_modules(job), outside_files(job))
    evaluation = import_closure(evaluation_modules(job, FILED_METRICS), outside_files(job, "network"))
    assert {"bflp.engine.round", "bflp.engine.client", "bflp.rng"} <= trained
    assert trained - training == set()
    # What only evaluating loads is covered by the evaluation's fingerprint.
    assert evaluated - trained - evaluation == set()
    assert ("bflp.engine.augment" in trained) == (augment is not None)
    assert ("bflp.engine.stack" in trained) == ("bflp.engine.stack" in training) == (stack is not None)
