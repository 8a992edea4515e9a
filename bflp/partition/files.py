"""Partition files: which training samples each client holds.

The .npz holds `indices` int64 [N], the clients' samples one client after the other, `offsets` int64 [clients + 1],
where each begins and ends, and `job`, the JSON of what the partition was made from. The .csv beside it counts each
client's labels.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.errors import DataError
from bflp.files import canonical_json, whole_file, write_text
from bflp.rng import numpy_generator


@dataclass(frozen=True)
class Partition:
    """indices [N], offsets [clients + 1], and what the partition was made from."""

    indices: NDArray[np.int64]
    offsets: NDArray[np.int64]
    job: dict[str, Any]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples per client [clients]."""
        return np.diff(self.offsets)

    def client(self, client: int) -> NDArray[np.int64]:
        """The indices of one client's samples."""
        return self.indices[self.offsets[client] : self.offsets[client + 1]]

    def content_hash(self) -> str:
        """sha256 of indices and offsets."""
        return hashlib.sha256(self.indices.tobytes() + self.offsets.tobytes()).hexdigest()


def make(labels: NDArray[np.int64], job: dict[str, Any], data_hash: str) -> Partition:
    """Split labels [N] as `job` says (name, clients, seed, settings). Raises DataError."""
    clients, settings = job["clients"], job["settings"]
    where = f"partition {job['name']} of {job['dataset']}"
    if clients > len(labels):
        raise DataError(f"{where}: {clients} clients are more than the {len(labels)} training samples")
    module = importlib.import_module(f"bflp.partition.{settings['strategy']}")
    try:
        parts = module.split(labels, clients, settings, numpy_generator(job["seed"], "partition"))
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return Partition(np.concatenate(parts).astype(np.int64), offsets.astype(np.int64), {**job, "data": data_hash})


def save(partition: Partition, labels: NDArray[np.int64], path: Path) -> None:
    """Write the .npz and the .csv of label counts."""
    write_text(path.with_suffix(".csv"), counts_table(partition, labels))
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            indices=partition.indices,
            offsets=partition.offsets,
            job=np.array(canonical_json(partition.job)),
        )


def counts_table(partition: Partition, labels: NDArray[np.int64]) -> str:
    """The .csv: a client's number of samples, and how many of them have each label, in each line."""
    count = int(labels.max()) + 1
    rows = ["client,samples," + ",".join(f"label{label}" for label in range(count))]
    for client, size in enumerate(partition.sizes):
        counts = np.bincount(labels[partition.client(client)], minlength=count)
        rows.append(",".join(map(str, [client, size, *counts])))
    return "\n".join(rows) + "\n"


def load(path: Path) -> Partition:
    """Read a partition file. Raises DataError where it is missing or broken."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            job, indices, offsets = (archive[name] for name in ("job", "indices", "offsets"))
            # numpy gives bytes for what does not begin as an array.
            if not all(isinstance(part, np.ndarray) for part in (job, indices, offsets)):
                raise ValueError("what it holds are no arrays")
            partition = Partition(indices, offsets, dict(json.loads(str(job))))
    except FileNotFoundError:
        raise DataError(f"there is no partition file {path}: run snakemake") from None
    except PermissionError:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} is broken ({error}): delete it and run snakemake again") from None
    except Exception as error:  # zlib.error and others that a damaged archive can raise
        raise DataError(f"{path} is broken ({type(error).__name__}): delete it and run snakemake again") from None
    return partition


def check(partition: Partition, path: Path, job: dict[str, Any], data_hash: str, samples: int) -> None:
    """Raise DataError unless the file was made from `job` and this data, and gives every sample to one client."""
    for key, wanted in (*job.items(), ("data", data_hash)):
        if partition.job.get(key) != wanted:
            raise DataError(f"{path} was made from another {key}: delete it and run snakemake again")
    indices, offsets = partition.indices, partition.offsets
    each_once = indices.dtype == np.int64 and np.array_equal(np.sort(indices, axis=None), np.arange(samples))
    if (
        not each_once
        or indices.ndim != 1
        or offsets.shape != (job["clients"] + 1,)
        or (offsets[0], offsets[-1]) != (0, samples)
        or (np.diff(offsets) < 1).any()
    ):
        raise DataError(f"{path} does not give each of the {samples} samples to one client: delete it")
