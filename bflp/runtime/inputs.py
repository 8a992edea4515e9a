"""The files that a cell reads: opened, checked against its job, and the same until its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bflp.datasets import prepared
from bflp.datasets.prepared import Dataset
from bflp.engine.inputs import Inputs
from bflp.engine.local import Chosen
from bflp.engine.settings import CellSettings
from bflp.engine.work import Work, network_of
from bflp.errors import DataError, UserError
from bflp.grid.job import Job
from bflp.networks.layout import Layout
from bflp.partition import files as partition_files
from bflp.partition.files import Partition
from bflp.runtime.algorithm import CheckedAlgorithm
from bflp.runtime.states import ClientStates
from bflp.settings.algorithms import algorithm_file, algorithm_module


@dataclass(frozen=True)
class Assignment:
    """All that a process needs to do a cell's work: its job, the files that it reads, and the device.

    states_folder: of what clients remember; None where nothing is trained.
    """

    job: Job
    data_file: Path
    partition_file: Path
    device: str = "cpu"
    ood_file: Path | None = None
    states_folder: Path | None = None

    def settings(self) -> CellSettings:
        """The cell's settings, typed. Raises UserError."""
        try:
            return CellSettings.of(self.job.cell.seed, self.job.cell.aggregator, self.job.settings)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"malformed --job: {error}") from None

    def open(self) -> tuple[Dataset, Partition, Dataset | None]:
        """Data set, partition and out-of-distribution data set. Raises DataError."""
        ood = prepared.open_prepared(self.ood_file) if self.ood_file else None
        return prepared.open_prepared(self.data_file), partition_files.load(self.partition_file), ood

    def layout(self, data: Dataset) -> Layout:
        """Where the parameters of the cell's network lie in its vector."""
        return network_of(self.settings(), data.input_shape, data.labels).layout

    def states(self) -> ClientStates:
        """What clients remember."""
        return ClientStates(self.states_folder or Path("nowhere"))

    def work(self) -> Work:
        """What executes the cell's tasks in this process. Raises DataError."""
        data, partition, ood = self.open()
        images = ood.test_inputs if ood else None
        arrays = (data.train_inputs, data.train_labels, data.test_inputs, data.test_labels, data.labels)
        inputs = Inputs(*arrays, partition.indices, partition.offsets, images, partition.held_out_indices)
        return Work(self.settings(), inputs, self.device, self._algorithm(), self.states())

    def _algorithm(self) -> Chosen:
        """The algorithm that the job's settings name, with its settings; FedAvg where they name none."""
        given = dict(self.job.settings.get("algorithm", {"name": "fedavg"}))
        module = algorithm_module(given)
        own = {key: value for key, value in given.items() if key not in ("name", "file")}
        settings = module.Settings(**own) if hasattr(module, "Settings") else None
        return CheckedAlgorithm(algorithm_file(given), module, settings)


def checked(assignment: Assignment) -> dict[str, str | None]:
    """Check data and partition against the job; return the content hashes of all that the cell reads."""
    data, partition, ood = assignment.open()
    hashes = _hashes(data, partition, ood)
    for file, name in _data_files(assignment):
        if hashes[name] != prepared.read_summary(file)["sha256"]:
            raise DataError(f"{file} was changed after it was prepared: delete it and prepare the data set again")
    if ood is not None and ood.input_shape != data.input_shape:
        raise DataError(
            f"out_of_distribution: its images have shape {ood.input_shape}, not {data.input_shape} as the data set's"
        )
    job = assignment.job
    expected = {
        "dataset": job.cell.dataset,
        "clients": job.settings["setup"]["clients"],
        "name": job.cell.partition,
        "settings": job.settings["partition"],
        "seed": job.settings["partition"].get("seed", job.cell.seed),
        "fingerprint": job.partition_fingerprint,
    }
    samples = len(data.train_labels)
    partition_files.check(partition, assignment.partition_file, expected, str(hashes["dataset"]), samples)
    return hashes


def check_unchanged(assignment: Assignment, hashes: dict[str, str | None]) -> None:
    """Raise DataError where the files no longer hold what this process read from them.

    Workers open them a little later, and memory-mapped arrays show what is written into a file.
    """
    now = _hashes(*assignment.open())
    files = [*_data_files(assignment), (assignment.partition_file, "partition")]
    changed = [str(file) for file, name in files if now[name] != hashes[name]]
    if changed:
        raise DataError(f"{', '.join(changed)} was changed while the cell was trained from it: run snakemake again")


def _data_files(assignment: Assignment) -> list[tuple[Path, str]]:
    """The data files, and what their hashes are called."""
    ood = [(assignment.ood_file, "out_of_distribution")] if assignment.ood_file else []
    return [(assignment.data_file, "dataset"), *ood]


def _hashes(data: Dataset, partition: Partition, ood: Dataset | None) -> dict[str, str | None]:
    return {
        "dataset": data.content_hash(),
        "out_of_distribution": ood.content_hash() if ood is not None else None,
        "partition": partition.content_hash(),
    }
