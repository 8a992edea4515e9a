"""A run's folder with made-up results that pass every check, so that figures, pages and status need no training."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bflp.datasets import prepared as arrays
from bflp.datasets.download import prepare_source
from bflp.grid.plan import Cell, Plan
from bflp.partition import files
from bflp.results.file import write_result
from bflp.settings.schema import Settings

LABELS = 10


def settings(folder: Path, samples: int = 4000, **grid: Any) -> Settings:
    """Settings of a small grid in `folder` on a synthetic data set; `grid` replaces entries of the grid."""
    source = folder / "synthetic.npz"
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        labels = np.arange(samples) % LABELS
        images = np.zeros((samples, 1, 16, 16), dtype=np.uint8)
        images[:, 0, 0, 0] = np.arange(samples) % 256
        np.savez(source, train_images=images, train_labels=labels, test_images=images[:50], test_labels=labels[:50])
    datasets = grid.get("datasets", ["synthetic"])
    return Settings.parse(
        {
            "grid": {
                "datasets": datasets,
                "partitions": ["noniid"],
                "clients": [10],
                "models": ["FED", "FEDAVG", "FVBA", "FVBWA"],
                "aggregators": ["EAA", "GAA", "AALV", "PPA", "CF"],
                "seeds": [0, 1, 2],
                **{key: value for key, value in grid.items() if key not in ("rounds", "aggregator_files", "bins")},
            },
            "datasets": {dataset: {"source": str(source)} for dataset in datasets},
            "partitions": {"iid": {"strategy": "iid"}, "noniid": {"strategy": "dirichlet", "alpha": 0.5}},
            "setups": {
                clients: {"fraction": 1.0, "rounds": grid.get("rounds", 12)} for clients in grid.get("clients", [10])
            },
            "evaluation": {"ece_bins": grid.get("bins", 20)},
            "aggregator_files": grid.get("aggregator_files", {}),
            "processes": 1,
            "device": "cpu",
            "results_dir": str(folder / "results"),
            "data_dir": str(folder / "data"),
        }
    )


def make(
    plan: Plan, wanted: Callable[[Cell], bool] = lambda cell: True, diverged: frozenset[Cell] = frozenset()
) -> None:
    """Write data, partitions, and the results and models of the cells that are `wanted`."""
    for dataset in plan.datasets():
        if not plan.data_file(dataset).exists():
            source = plan.settings.source(dataset)
            assert source is not None
            prepare_source(Path(source), plan.data_file(dataset))
    for cell in plan.cells:
        data, partition = plan.data_file(cell.dataset), plan.partition_file(cell)
        if not partition.exists():
            labels = np.array(arrays.open_prepared(data).train_labels)
            job = json.loads(plan.partition_job(cell.dataset, cell.partition, cell.clients, cell.seed))
            files.save(files.make(labels, job, arrays.read_summary(data)["sha256"]), labels, partition)
    for cell in filter(wanted, plan.cells):
        model = plan.model_file(cell)
        model.parent.mkdir(parents=True, exist_ok=True)
        model.write_bytes(b"")
        write_result(plan.result_file(cell), result(plan, cell, cell in diverged))


def result(plan: Plan, cell: Cell, diverged: bool = False) -> dict[str, Any]:
    """A result as a training program writes it, its numbers drawn from the cell's name."""
    job = json.loads(plan.job(cell))
    generator = np.random.default_rng(zlib.crc32(str(cell).encode()))
    rank = plan.rows().index((cell.model, cell.aggregator))
    count = job["settings"]["setup"]["rounds"]
    rounds = np.arange(1, (count // 3 if diverged else count) + 1)
    progress = 1 - np.exp(-3.0 * rounds / count) + 0.01 * generator.standard_normal(len(rounds))
    accuracy = np.clip(10 + (75 - rank) * progress, 0, 100)
    bins = job["settings"]["evaluation"]["ece_bins"]
    confidence = (np.arange(bins) + 0.7) / bins
    counts = np.round(10000 * confidence**6 / bins).astype(int)
    scale = accuracy[-1] / 100 * counts.sum() / (counts * confidence).sum()
    correct = np.round(counts * np.clip(scale * confidence, 0, 1)).astype(int)
    # The bins and the last round's accuracy must agree.
    accuracy[-1] = 100 * correct.sum() / counts.sum()
    history = [
        {
            "round": int(round_),
            "accuracy": float(accuracy[index]),
            "ece": float(2 + rank * 0.8 + generator.random()),
            "nll": float(2.3 - 1.6 * progress[index] + 0.03 * rank),
            "spread": float((1 + rank) * (1 + progress[index])) if cell.variational else None,
        }
        for index, round_ in enumerate(rounds)
    ]
    further = ("brier", "adaptive_ece", "maximum_calibration_error", "entropy", "aleatoric", "epistemic")
    final = {key: value for key, value in history[-1].items() if key != "round"}
    final |= {name: float(generator.random()) for name in further} | {"ood_auroc": None}
    values = [float(value) for value in generator.random(cell.clients)]
    seen = {f"{name}{what}": 0.5 for name in ("accuracy", "ece", "nll") for what in ("_worst_decile", "_gini")}
    environment = {"python": "3.11", "torch": "2", "numpy": "2", "system": "Linux", "processor": "P", "cores": 2}
    environment |= {"device": "cpu", "gpu": None, "processes": 1, "resumed_at": []}
    return {
        "cell": cell.as_dict(),
        "settings": job["settings"],
        "fingerprint": job["fingerprint"],
        "data": {
            "dataset": arrays.read_summary(plan.data_file(cell.dataset))["sha256"],
            "out_of_distribution": None,
            "partition": "0" * 64,
        },
        "model_sha256": "0" * 64,
        "environment": environment,
        "rounds": history,
        "diverged": {"round": len(rounds) + 1, "client": 3, "reason": "loss"} if diverged else None,
        "final": None if diverged else final,
        "reliability": None
        if diverged
        else {"counts": counts.tolist(), "correct": correct.tolist(), "confidence": (counts * confidence).tolist()},
        "clients": None if diverged else {"accuracy": values, "ece": values, "nll": values, **seen},
        "timing": {
            **{f"{name}_seconds": [0.5] * len(rounds) for name in ("train", "aggregation", "evaluation")},
            "total_seconds": 1.5 * len(rounds),
            "startup_seconds": 1.0,
        },
    }


def config_file(plan: Plan, path: Path) -> Path:
    """The plan's settings as a config file."""
    settings = plan.settings.model_dump(mode="json", exclude_unset=True)
    settings["setups"] = {int(clients): setup for clients, setup in settings["setups"].items()}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path
