"""A federation small enough to train in a fraction of a second: 16x16 images, three labels, four unequal clients."""

import contextlib
import dataclasses
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from bflp.datasets import prepared as arrays
from bflp.engine.settings import CellSettings
from bflp.files import canonical_json
from bflp.fingerprint import fingerprint
from bflp.grid.coverage import partition_modules
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.partition import files
from bflp.partition.files import Partition
from bflp.runtime.checkpoint import Checkpoints
from bflp.runtime.inputs import Assignment
from bflp.runtime.options import CellFiles, Options
from bflp.runtime.termination import Terminated
from bflp.runtime.train import train
from bflp.settings.schema import Settings

SIZES = (7, 80, 3, 30)  # the largest client is not the first
LARGEST = 1
SEED = 5
BINS = 20


@dataclass(frozen=True)
class TinyFederation:
    """Makes jobs on the small data set, and runs them below `folder`."""

    folder: Path

    @property
    def data_file(self) -> Path:
        return self.folder / "data" / "tiny.npz"

    @property
    def partition_file(self) -> Path:
        return self.folder / "partition.npz"

    def plan(self, model="FVBWA", aggregator="EAA", **overrides) -> Plan:
        """overrides: of the settings' sections."""
        sections: dict[Any, Any] = {
            "setups": {len(SIZES): {"fraction": 0.75, "rounds": 3}},
            "training": {"local_epochs": 2, "batch_size": 16},
            "evaluation": {"monte_carlo_samples": 2, "ece_bins": BINS},
        }
        for name, values in overrides.items():
            sections[name] = {**sections.get(name, {}), **values} if isinstance(values, dict) else values
        grid = {"datasets": ["tiny"], "partitions": ["uneven"], "clients": [len(SIZES)], "models": [model]}
        return Plan(
            Settings.parse(
                {
                    "grid": {**grid, "aggregators": [aggregator] if aggregator else [], "seeds": [SEED]},
                    "datasets": {"tiny": {"source": str(self.data_file)}},
                    "partitions": {"uneven": {"strategy": "iid"}},
                    "results_dir": str(self.folder / "results"),
                    **sections,
                }
            )
        )

    def job_text(self, model="FVBWA", aggregator="EAA", **overrides) -> str:
        """The job as the workflow would give it."""
        plan = self.plan(model, aggregator, **overrides)
        return plan.job(plan.cells[0])

    def job(self, model="FVBWA", aggregator="EAA", **overrides) -> Job:
        return Job.parse(self.job_text(model, aggregator, **overrides))

    def settings(self, model="FVBWA", aggregator="EAA", **overrides) -> CellSettings:
        return self.assignment(self.job(model, aggregator, **overrides)).settings()

    def assignment(self, job: Job) -> Assignment:
        return Assignment(job, self.data_file, self.partition_file)

    def files(self, name: str = "cell", **others: Path) -> CellFiles:
        written = {
            "result": self.folder / f"{name}.json",
            "model": self.folder / f"{name}.safetensors",
            "evaluation": self.folder / f"{name}.evaluation.json",
            "progress": self.folder / "progress" / f"{name}.json",
            # Runs of other names begin with nothing.
            "kept": self.kept(name),
        }
        return CellFiles(self.data_file, self.partition_file, **{**written, **others})

    def run(
        self, job: Job, name: str = "cell", processes: int = 1, partition: Path | None = None, bins=BINS, **options
    ):
        """Train; return the whole result, what of it must be the same in every run, and the model file's bytes."""
        evaluation = {"settings": {"ece_bins": bins, "monte_carlo_samples": 2}, "fingerprint": "0" * 16}
        chosen = {"processes": processes, "device": "cpu", "checkpoint_seconds": 0.0, **options}
        # Jobs that name other code are tried, too.
        with mock.patch("bflp.runtime.cell.check_code", return_value={}):
            files = dataclasses.replace(self.files(name), partition=partition or self.partition_file)
            train(job, files, Options(evaluation, **chosen))
        return self.read(name)

    def read(self, name: str = "cell"):
        result = json.loads((self.folder / f"{name}.json").read_text())
        evaluation = json.loads((self.folder / f"{name}.evaluation.json").read_text())
        same = {key: value for key, value in result.items() if key not in ("environment", "timing")}
        same["evaluation"] = {key: value for key, value in evaluation.items() if key != "environment"}
        return (
            {**result, **evaluation, **result},
            canonical_json(same),
            (self.folder / f"{name}.safetensors").read_bytes(),
        )

    def kept(self, name: str = "cell") -> Path:
        return self.folder / "kept" / name


@contextlib.contextmanager
def stopped_after(round_: int) -> Iterator[None]:
    """Within it a cell must be stopped, as by a SIGTERM, as soon as the checkpoint of a round is written."""
    save = Checkpoints.save

    def save_and_stop(self, reached):
        save(self, reached)
        if reached.round == round_:
            raise Terminated(signal.SIGTERM)

    with mock.patch.object(Checkpoints, "save", save_and_stop), pytest.raises(Terminated):
        yield


def _dataset() -> arrays.Dataset:
    """Images with a bright corner that tells the label, in noise. The test set takes two evaluation tasks."""
    generator = np.random.default_rng(0)
    made = []
    for size in (sum(SIZES), 600):
        labels = generator.permutation(np.arange(size) % 3)
        images = generator.integers(0, 120, (size, 1, 16, 16), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[0, 8 * (label // 2) :, 8 * (label % 2) :][:8, :8] += 80
        made += [images, labels]
    return arrays.Dataset(*made)


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    dataset = _dataset()
    (folder / "data").mkdir()
    arrays.save(dataset, folder / "data" / "tiny.npz")
    job = {"dataset": "tiny", "name": "uneven", "clients": len(SIZES), "seed": SEED, "settings": {"strategy": "iid"}}
    job["fingerprint"] = fingerprint(partition_modules("iid"))
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    indices = np.random.default_rng(1).permutation(sum(SIZES))
    partition = Partition(indices, offsets, {**job, "data": dataset.content_hash()})
    files.save(partition, dataset.train_labels, folder / "partition.npz")
    return folder


@pytest.fixture
def tiny(tiny_files, tmp_path) -> TinyFederation:
    (tmp_path / "data").symlink_to(tiny_files / "data")
    (tmp_path / "partition.npz").symlink_to(tiny_files / "partition.npz")
    return TinyFederation(tmp_path)
