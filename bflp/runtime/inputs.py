"""The data and the partition that a cell reads: are they whole, what the job names, and the same until its end?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bflp.datasets import prepared as arrays
from bflp.datasets.prepared import Dataset
from bflp.errors import DataError
from bflp.grid.job import Job
from bflp.partition import files
from bflp.partition.files import Partition

if TYPE_CHECKING:
    from bflp.runtime.worker import Worker


def checked(job: Job, worker: Worker) -> dict[str, str | None]:
    """Check data and partition against the job; return the content hashes of all that the cell reads."""
    ood = arrays.open_prepared(job.ood_file) if job.ood_file else None
    hashes = _hashes(worker.data, ood, worker.partition)
    for file, name in _input_files(job)[1:]:
        if hashes[name] != arrays.read_summary(file)["sha256"]:
            raise DataError(f"{file} was changed after it was prepared: delete it and prepare the data set again")
    expected = {"dataset": job.cell["dataset"], "clients": job.cell["clients"], "seed": job.seed}
    if worker.ood_images is not None and worker.ood_images.shape[1:] != worker.data.train_images.shape[1:]:
        shapes = f"{worker.ood_images.shape[1:]}, not {worker.data.train_images.shape[1:]}"
        raise DataError(f"evaluation.out_of_distribution: its images have shape {shapes} as those of the data set")
    expected |= {"name": job.cell["partition"], "settings": job.settings["partition"]}
    if job.partition_fingerprint is not None and "fingerprint" in worker.partition.job:
        expected["fingerprint"] = job.partition_fingerprint
    data_hash = str(hashes["dataset"])
    files.check(worker.partition, job.partition_file, expected, data_hash, len(worker.data.train_labels))
    return hashes


def check_unchanged(job: Job, hashes: dict[str, str | None]) -> None:
    """Raise DataError where the files do not hold any more what this process read from them.

    Workers open them a little later, and memory-mapped arrays show what is written into a file.
    """
    ood = arrays.open_prepared(job.ood_file) if job.ood_file else None
    now = _hashes(arrays.open_prepared(job.data_file), ood, files.load(job.partition_file))
    changed = [str(file) for file, name in _input_files(job) if now[name] != hashes[name]]
    if changed:
        raise DataError(f"{', '.join(changed)} was changed while the cell was trained from it: run snakemake again")


def _input_files(job: Job) -> list[tuple[Path, str]]:
    """The files that a cell reads, and what their hashes are called in its result; the partition first."""
    both = [(job.partition_file, "partition"), (job.data_file, "dataset")]
    return [*both, *([(job.ood_file, "out_of_distribution")] if job.ood_file else [])]


def _hashes(data: Dataset, ood: Dataset | None, partition: Partition) -> dict[str, str | None]:
    return {
        "dataset": data.content_hash(),
        "out_of_distribution": ood.content_hash() if ood is not None else None,
        "partition": partition.content_hash(),
    }
