"""Grids and results that nobody computed, as plain namespaces with the fields that tables and figures read.

They need no settings, no training and no files; numbers are drawn from the cells' names.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import CURVES
from bflp.reporting.figures.block import Block
from bflp.results.evaluation import Evaluation
from bflp.results.result import Environment

RULES = ("EAA", "GAA", "AALV", "PPA", "CF")
# Name to how its clients weigh, and its rules: none without a posterior.
PAPER = {"FED": ("equal", ()), "FEDAVG": ("data", ()), "FVBA": ("equal", RULES), "FVBWA": ("data", RULES)}
Row = tuple[str, str]
Methods = Mapping[str, tuple[str, Sequence[str]]]


class Evaluated(SimpleNamespace):
    """What figures read of an evaluation."""

    metric = Evaluation.metric


def plan(
    methods: Methods = PAPER,
    setups: Mapping[str, int] | Sequence[str] = ("10",),
    metrics: Sequence[str] = ("accuracy", "ece", "nll"),
    posteriors: Sequence[str] = (),
    sweeps: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
    reference: str | None = None,
    **grid: Any,
) -> Any:
    """What `bflp.grid.plan.Plan` offers to tables and figures.

    setups: name to number of clients, or names that are numbers; posteriors: models that have one beside those with
    rules (a server step of their own); sweeps: name to the methods that are its rows, with their values;
    reference: the row that tables mark differences to.
    """
    counts = setups if isinstance(setups, Mapping) else {name: int(name) for name in setups}
    unset = ("at_round", "average_last", "target_accuracy")
    described = {"datasets": ["synthetic"], "partitions": ["noniid"], "seeds": [0, 1, 2], **grid}
    settings = SimpleNamespace(
        grid=SimpleNamespace(**described, clients=list(counts), models=list(methods)),
        tables=SimpleNamespace(**dict.fromkeys(unset), metrics=list(metrics), mark_differences=bool(reference)),
        statistics=SimpleNamespace(reference=reference),
        partitions={name: SimpleNamespace(held_out=None) for name in described["partitions"]},
        setups={name: SimpleNamespace(clients=number, fraction=1.0, rounds=50) for name, number in counts.items()},
    )
    rows = [(model, rule) for model, (_, rules) in methods.items() for rule in rules or ["none"]]
    return SimpleNamespace(
        settings=settings,
        rows=rows,
        shown_rows=rows,
        sweeps=sweeps or {},
        choosing={},
        partition_seed=lambda partition, seed: seed,
        method=lambda name: SimpleNamespace(weights=methods[name][0]),
        blocks=lambda: [
            (dataset, partition, setup)
            for dataset in described["datasets"]
            for partition in described["partitions"]
            for setup in counts
        ],
        has_posterior=lambda model: bool(methods[model][1]) or model in posteriors,
    )


def record(row: Row, seed: int, rank: int = 0, rounds: int = 12, bins: int = 20, diverged: bool = False) -> Any:
    """A cell's result and evaluation. rank: the place of its row, by which rows differ."""
    generator = np.random.default_rng(zlib.crc32(f"{row}{seed}".encode()))
    numbers = np.arange(1, (rounds // 3 if diverged else rounds) + 1)
    progress = 1 - np.exp(-3.0 * numbers / rounds) + 0.01 * generator.standard_normal(len(numbers))
    history = [
        SimpleNamespace(
            round=int(number),
            accuracy=float(np.clip(10 + (75 - rank) * done, 0, 100)),
            ece=float(2 + rank * 0.8 + generator.random()),
            nll=float(2.3 - 1.6 * done + 0.03 * rank),
            spread=None if row[1] == "none" else float((1 + rank) * (1 + done)),
        )
        for number, done in zip(numbers, progress, strict=True)
    ]
    confidence = (np.arange(bins) + 0.7) / bins
    counts = np.round(10000 * confidence**6 / bins).astype(int)
    correct = np.round(counts * np.clip(confidence - 0.01 * rank, 0, 1)).astype(int)
    last = {name: getattr(history[-1], name) for name in CURVES}
    environment: dict[str, Any] = {
        "python": "3.11",
        "torch": "2",
        "numpy": "2",
        "system": "Linux",
        "processor": "P",
        "cores": 2,
    }
    environment |= {"device": "cpu", "gpu": None, "processes": 1, "resumed_at": [], "curve_ece_bins": 15}
    times = {f"{name}_seconds": [0.5] * len(numbers) for name in ("train", "aggregation", "evaluation")}
    return SimpleNamespace(
        result=SimpleNamespace(
            rounds=history,
            diverged=SimpleNamespace(round=len(numbers) + 1, client=3, reason="loss") if diverged else None,
            environment=Environment(**environment),
            timing=SimpleNamespace(**times, total_seconds=1.5 * len(numbers)),
            fingerprint="0123456789abcdef",
        ),
        evaluation=None
        if diverged
        else Evaluated(
            final={**{name: float(generator.random()) for name in METRICS}, **last, "ood_auroc": None},
            reliability=SimpleNamespace(
                counts=counts.tolist(), correct=correct.tolist(), confidence=(counts * confidence).tolist()
            ),
            clients={"accuracy": [50.0], "accuracy_gini": 0.25},
        ),
    )


def block(
    of: Any,
    wanted: Callable[[Row, int], bool] = lambda row, seed: True,
    diverged: Callable[[Row, int], bool] = lambda row, seed: False,
    rounds: int = 12,
    bins: int = 20,
) -> Block:
    """The first block of a plan with the results of the cells that are wanted."""
    grid = of.settings.grid
    results = {
        row: {
            seed: record(row, seed, rank, rounds, bins, diverged(row, seed)) for seed in grid.seeds if wanted(row, seed)
        }
        for rank, row in enumerate(of.rows)
    }
    clients = of.settings.setups[grid.clients[0]].clients
    counts = np.random.default_rng(1).dirichlet([0.5] * 10, size=clients) * 400
    coordinates = (grid.datasets[0], grid.partitions[0], grid.clients[0])
    return Block.planned(of, coordinates, results, counts.astype(int))
