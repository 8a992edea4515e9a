"""A run's folder with made-up results that pass every check, so that states, pages and status need no training."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bflp.datasets import prepared
from bflp.datasets.download import prepare_source
from bflp.grid.cell import Cell
from bflp.grid.coverage import training_digests
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.partition import files
from bflp.results.evaluation import Evaluation
from bflp.results.file import write
from bflp.results.result import Result
from bflp.runtime.cell import write_model
from bflp.runtime.evaluate import model_hash
from bflp.runtime.inputs import Assignment
from bflp.settings.read import laid
from bflp.settings.schema import Settings

LABELS, TEST_SIZE = 10, 50
ENVIRONMENT = {"python": "3.11", "torch": "2", "numpy": "2", "system": "Linux", "processor": "P", "cores": 2}
ENVIRONMENT |= {"device": "cpu", "gpu": None, "processes": 1, "resumed_at": [], "curve_ece_bins": 20}


def plan(
    folder: Path, samples: int = 4000, rounds: int = 12, top: Mapping[str, Any] | None = None, **grid: Any
) -> Plan:
    """A small grid in `folder` on synthetic data; `grid` replaces entries of the grid, `top` lies over all."""
    source = folder / "synthetic.npz"
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        labels = np.arange(samples) % LABELS
        images = np.zeros((samples, 1, 16, 16), dtype=np.uint8)
        images[:, 0, 0, 0] = np.arange(samples) % 256
        test_images, test_labels = images[:TEST_SIZE], labels[:TEST_SIZE]
        np.savez(source, train_images=images, train_labels=labels, test_images=test_images, test_labels=test_labels)
    default: dict[str, Any] = {
        "datasets": ["synthetic"],
        "partitions": ["noniid"],
        "clients": [10],
        "models": ["FED", "FEDAVG", "FVBA", "FVBWA"],
        "aggregators": ["EAA", "GAA", "AALV", "PPA", "CF"],
        "seeds": [0, 1, 2],
    }
    chosen = {**default, **grid}
    config = {
        "grid": chosen,
        "datasets": {dataset: {"source": str(source)} for dataset in chosen["datasets"]},
        "partitions": {"iid": {"strategy": "iid"}, "noniid": {"strategy": "dirichlet", "alpha": 0.5}},
        "setups": {10: {"fraction": 1.0, "rounds": rounds}},
        "evaluation": {"ece_bins": 20},
        "processes": 1,
        "device": "cpu",
        "results_dir": str(folder / "results"),
        "data_dir": str(folder / "data"),
    }
    return Plan(Settings.parse(laid(config, top or {})))


def changed(of: Plan, **sections: Any) -> Plan:
    """The plan with other settings laid over its own."""
    return Plan(Settings.parse(laid(json.loads(of.settings.canonical()), sections)))


def config_file(of: Plan, path: Path) -> Path:
    """The plan's settings as a config file."""
    path.write_text(of.settings.canonical(), encoding="utf-8")
    return path


def make(of: Plan, wanted: Callable[[Cell], bool] = lambda cell: True, diverged: Collection[Cell] = ()) -> None:
    """Write data, partitions, and the results, models and evaluations of the cells that are `wanted`."""
    for dataset in of.datasets():
        if not of.paths.data(dataset).exists():
            source = of.settings.source(dataset)
            assert source is not None
            prepare_source(Path(source), of.paths.data(dataset))
    for cell in of.cells:
        data, partition = of.paths.data(cell.dataset), of.partition_file(cell)
        if not partition.exists():
            labels = np.array(prepared.open_prepared(data).train_labels)
            job = json.loads(of.partition_job_of(cell))
            files.save(files.make(labels, job, prepared.read_summary(data)["sha256"]), labels, partition)
    for cell in filter(wanted, of.cells):
        layout = _layout(of, cell)
        write_model(of.paths.model(cell), layout.views(torch.zeros(layout.size)), Job.parse(of.job(cell)))
        made = result(of, cell, cell in diverged)
        write(of.paths.result(cell), made)
        write(of.paths.evaluation(cell), evaluation(of, cell, made))


def result(of: Plan, cell: Cell, diverged: bool = False) -> Result:
    """A result as a training program writes it, its numbers drawn from the cell's name."""
    job = json.loads(of.job(cell))
    wanted, generator = job["settings"]["setup"]["rounds"], _generator(cell)
    done = wanted // 3 if diverged else wanted
    values = generator.random((done, 4)) * [99, 20, 3, 40]
    names = ("accuracy", "ece", "nll", "spread")
    rounds: list[dict[str, Any]] = [dict(zip(names, map(float, row), strict=True)) for row in values]
    for number, entry in enumerate(rounds, 1):
        entry |= {"round": number, **({} if of.has_posterior(cell.model) else {"spread": None})}
        if job["settings"]["partition"].get("held_out"):
            entry["held_out"] = {name: entry[name] for name in ("accuracy", "ece", "nll")}
    times = {f"{name}_seconds": [0.5] * done for name in ("train", "aggregation", "evaluation")}
    return Result.model_validate(
        {
            **{key: job[key] for key in ("cell", "settings", "fingerprint")},
            "data": _data(of, cell),
            "model_sha256": model_hash(torch.zeros(_layout(of, cell).size)),
            "environment": {**ENVIRONMENT, "code": training_digests(job)},
            "diverged": {"round": done + 1, "client": 3, "reason": "loss"} if diverged else None,
            "rounds": rounds,
            "timing": {**times, "total_seconds": 1.5 * done, "startup_seconds": 1.0},
            "traffic": {"up_bytes": [3_000_000] * done, "down_bytes": [5_000_000] * done},
        }
    )


def evaluation(of: Plan, cell: Cell, made: Result) -> Evaluation:
    """The evaluation of a result; null where it diverged."""
    fields: dict[str, Any] = dict.fromkeys(("final", "reliability", "confusion", "clients"))
    wanted = of.evaluation_of(cell)
    if made.diverged is None:
        generator, bins = _generator(cell), wanted["settings"]["ece_bins"]
        counts = generator.multinomial(TEST_SIZE, np.full(bins, 1 / bins))
        correct = generator.binomial(counts, 0.8)
        further = ("brier", "ace", "mce", "entropy", "expected_entropy", "mutual_information", "macro_f1")
        last = made.rounds[-1]
        values = [float(value) for value in generator.random(of.settings.setups[cell.clients].clients)]
        summaries = {f"{name}_{what}": 0.5 for name in ("accuracy", "ece", "nll") for what in ("worst_decile", "gini")}
        fields |= {
            "final": {
                **{name: float(generator.random()) for name in further},
                "accuracy": float(100 * correct.sum() / counts.sum()),
                **{"ece": last.ece, "nll": last.nll, "spread": last.spread, "ood_auroc": None},
            },
            "reliability": {
                **{"counts": counts.tolist(), "correct": correct.tolist()},
                "confidence": [float(value) for value in 0.8 * counts],
            },
            "clients": {"accuracy": values, "ece": values, "nll": values, **summaries},
        }
    return Evaluation.model_validate(
        {
            "cell": cell.as_dict(),
            "model_sha256": made.model_sha256,
            **wanted,
            "data": {**_data(of, cell), "out_of_distribution": _ood_hash(of, cell) if made.diverged is None else None},
            "environment": {"torch": "2", "device": "cpu"},
            **fields,
        }
    )


def rewrite(path: Path, kind: type[Result] | type[Evaluation], change: Callable[[dict[str, Any]], Any]) -> Path:
    """Change a result or an evaluation and give it a right checksum, as a program would that made it so."""
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    write(path, kind.model_validate(content))
    return path


def _data(of: Plan, cell: Cell) -> dict[str, str]:
    dataset = prepared.read_summary(of.paths.data(cell.dataset))["sha256"]
    return {"dataset": dataset, "partition": files.load(of.partition_file(cell)).content_hash()}


def _ood_hash(of: Plan, cell: Cell) -> str | None:
    other = of.settings.out_of_distribution(cell.dataset)
    return prepared.read_summary(of.paths.data(other))["sha256"] if other else None


def _layout(of: Plan, cell: Cell) -> Any:
    return _layout_of(of.paths.data(cell.dataset), of.job(cell))


@cache
def _layout_of(data: Path, job: str) -> Any:
    return Assignment(Job.parse(job), data, Path()).layout(prepared.open_prepared(data))


def _generator(cell: Cell) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(str(cell).encode()))
