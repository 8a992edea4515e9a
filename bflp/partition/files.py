"""Partition files: which training samples each client holds.

The .npz holds `indices` int64, the clients' samples one client after the other, `offsets` int64 [clients + 1], where
each begins and ends, and `job`, the JSON of what the partition was made from; where samples are held out of clients,
`held_out_indices` and `held_out_offsets` in the same form. Each training sample stands in one place. The .csv beside it
counts the labels that each client trains on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.errors import DataError
from bflp.files import canonical_json, sha256_of, whole_file, write_text
from bflp.partition import SplitError
from bflp.partition.split import Parts, split
from bflp.rng import numpy_generator
from bflp.settings.own_files import described, executed


@dataclass(frozen=True)
class Partition:
    """indices [n] and offsets [clients + 1] of what clients train on, and of what is held out of them.

    job: what the partition was made from.
    """

    indices: NDArray[np.int64]
    offsets: NDArray[np.int64]
    job: dict[str, Any]
    held_out_indices: NDArray[np.int64] | None = None
    held_out_offsets: NDArray[np.int64] | None = None

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples per client [clients]; 0 for a client without data."""
        return np.diff(self.offsets)

    def client(self, client: int) -> NDArray[np.int64]:
        """The indices of the samples that one client trains on."""
        return self.indices[self.offsets[client] : self.offsets[client + 1]]

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """The arrays under the names that they have in a file; those of held-out samples where there are any."""
        names = ("indices", "offsets", "held_out_indices", "held_out_offsets")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def content_hash(self) -> str:
        """sha256 of all arrays."""
        return hashlib.sha256(b"".join(array.tobytes() for array in self.arrays().values())).hexdigest()

    def __str__(self) -> str:
        sizes, empty = self.sizes, int((self.sizes == 0).sum())
        text = f"{len(sizes)} clients with {sizes.min()} to {sizes.max()} samples"
        text += f", {empty} of them empty" if empty else ""
        return text if self.held_out_indices is None else f"{text}; {len(self.held_out_indices)} samples held out"


def make(
    labels: NDArray[np.int64], job: dict[str, Any], data_hash: str, train_clients: NDArray[np.int64] | None = None
) -> Partition:
    """Split labels [N] as `job` says: `name`, `clients`, `seed` and `settings`.

    settings: of the strategy, and `held_out`, the share of each client's samples that it does not train on.
    train_clients: see `bflp.partition.natural`. Raises DataError.
    """
    settings = {**job["settings"], "train_clients": train_clients, **_own_split(labels, job)}
    try:
        parts, held = split(labels, job["clients"], job["seed"], settings)
    except SplitError as error:
        file = f"{settings['file']}: " if settings["strategy"] == "file" else ""
        raise DataError(f"partition {job['name']} of {job['dataset']}: {file}{error}") from None
    if held is not None and not any(map(len, held)):
        where = f"partitions.{job['name']}.held_out"
        raise DataError(f"{job['dataset']}/{job['name']} holds out no sample of any client: raise {where}")
    return Partition(*_joined(parts), {**job, "data": data_hash}, *(_joined(held) if held else ()))


def _joined(parts: Parts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.concatenate(parts), np.cumsum([0, *map(len, parts)], dtype=np.int64)


def split_hash(path: Path) -> str:
    """sha256 of the file of a user's own split. Raises DataError, for a program without a function `split`, too."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file (it is the `file:` of a partition)")
    if path.suffix == ".py":
        _own_function(path)
    return sha256_of(path)


def _own_function(path: Path) -> Callable[..., Any]:
    try:
        function: Callable[..., Any] | None = getattr(executed(path.stem, path), "split", None)
    except Exception as error:
        raise DataError(described(path, error)) from None
    if not callable(function):
        raise DataError(f"{path} must define a function `split(labels, clients, settings, generator)`")
    return function


def _own_split(labels: NDArray[np.int64], job: dict[str, Any]) -> dict[str, NDArray[np.int64]]:
    """`indices` and `offsets` for the strategy `file`; its settings: `file`, the path, and `sha256`, of its content."""
    settings = job["settings"]
    if settings["strategy"] != "file":
        return {}
    path = Path(settings["file"])
    if split_hash(path) != settings["sha256"]:
        raise DataError(f"{path} was changed since snakemake read it: run snakemake again")
    if path.suffix == ".py":
        generator = numpy_generator(job["seed"], "partition")
        try:
            parts = [
                np.asarray(part) for part in _own_function(path)(labels.copy(), job["clients"], settings, generator)
            ]
            if any(part.ndim != 1 or (part.size and part.dtype.kind not in "iu") for part in parts):
                raise ValueError("it must return a list of whole numbers for each client")
            if len(parts) != job["clients"]:
                raise ValueError(f"it must return a list for each of {job['clients']} clients, not {len(parts)}")
            indices, offsets = _joined([part.astype(np.int64) for part in parts])
            if not np.array_equal(np.sort(indices), np.arange(len(labels))):
                raise ValueError(f"its lists must hold each of the training samples 0 to {len(labels) - 1} once")
        except Exception as error:
            raise DataError(f"partition {job['name']}: {described(path, error)}") from None
        return {"indices": indices, "offsets": offsets}
    with _npz(path, "write it with numpy.savez") as archive:
        arrays = {name: archive[name] for name in ("indices", "offsets")}
        if any(array.ndim != 1 or not np.issubdtype(array.dtype, np.integer) for array in arrays.values()):
            raise ValueError("`indices` and `offsets` must be lists of whole numbers")
        return {name: array.astype(np.int64) for name, array in arrays.items()}


def save(partition: Partition, labels: NDArray[np.int64], path: Path) -> None:
    """Write the .npz and the .csv of label counts."""
    write_text(path.with_suffix(".csv"), counts_table(partition, labels))
    with whole_file(path) as temporary, temporary.open("wb") as file:
        job = np.array(canonical_json(partition.job))
        np.savez_compressed(file, allow_pickle=False, **partition.arrays(), job=job)


def counts_table(partition: Partition, labels: NDArray[np.int64]) -> str:
    """The .csv: a client's number of samples, and how many of them have each label, in each line."""
    count = int(labels.max()) + 1
    rows = ["client,samples," + ",".join(f"label{label}" for label in range(count))]
    for client, size in enumerate(partition.sizes):
        counts = np.bincount(labels[partition.client(client)], minlength=count)
        rows.append(",".join(map(str, [client, size, *counts])))
    return "\n".join(rows) + "\n"


@contextmanager
def _npz(path: Path, advice: str) -> Iterator[Any]:
    """An open archive; whatever goes wrong while it is open is a DataError with `advice`."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            yield archive
    except PermissionError:
        raise
    except Exception as error:  # whatever a damaged archive can raise
        raise DataError(f"{path} is broken ({str(error) or type(error).__name__}): {advice}") from None


def load(path: Path) -> Partition:
    """Read a partition file. Raises DataError where it is missing or broken."""
    if not path.is_file():
        raise DataError(f"there is no partition file {path}: run snakemake")
    with _npz(path, "delete it and run snakemake again") as archive:
        names = ["indices", "offsets", *(name for name in archive.files if name.startswith("held_out_"))]
        arrays = {name: archive[name] for name in names}
        job = archive["job"]
        # numpy gives bytes for what does not begin as an array.
        if not all(isinstance(part, np.ndarray) for part in (job, *arrays.values())):
            raise ValueError("what it holds are not arrays")
        return Partition(**arrays, job=dict(json.loads(str(job))))


def check(partition: Partition, path: Path, job: dict[str, Any], data_hash: str, samples: int) -> None:
    """Raise DataError unless the file was made from `job` and this data, and gives every sample to one client.

    Clients without samples may be where the settings ask for none: with `min_samples: 0`, or in a split of one's own.
    """
    if key := _other_than(partition, job, data_hash):
        raise DataError(f"{path} was made from another {key}: delete it and run snakemake again")
    settings, clients = job["settings"], job["clients"]
    fewest = 0 if settings["strategy"] == "file" or settings.get("min_samples") == 0 else 1
    lists: list[tuple[Any, Any, int]] = [(partition.indices, partition.offsets, fewest)]
    if settings.get("held_out"):
        lists.append((partition.held_out_indices, partition.held_out_offsets, 0))
    if not all(_are_lists(*one, clients) for one in lists) or not np.array_equal(
        np.sort(np.concatenate([indices for indices, _, _ in lists])), np.arange(samples)
    ):
        raise DataError(f"{path} does not give each of the {samples} samples to one client: delete it")


def is_of(path: Path, job: dict[str, Any], data_hash: str) -> bool:
    """Whether a partition file is there that was made from `job` and this data."""
    try:
        return _other_than(load(path), job, data_hash) is None
    except DataError:
        return False


def _other_than(partition: Partition, job: dict[str, Any], data_hash: str) -> str | None:
    """The first part of what a partition was made from that is not as in `job` and `data_hash`."""
    parts = (*job.items(), ("data", data_hash))
    return next((key for key, now in parts if _without_path(partition.job.get(key)) != _without_path(now)), None)


def _without_path(part: Any) -> Any:
    """Of a job. A split of one's own is what its file holds, wherever it lies."""
    return {**part, "file": None} if isinstance(part, dict) and "file" in part else part


def _are_lists(indices: Any, offsets: Any, fewest: int, clients: int) -> bool:
    """Whether these are lists of at least `fewest` samples, one for each client."""
    return (
        indices is not None
        and offsets is not None
        and indices.dtype == np.int64
        and indices.ndim == 1
        and offsets.shape == (clients + 1,)
        and (offsets[0], offsets[-1]) == (0, len(indices))
        and bool((np.diff(offsets) >= fewest).all())
    )
