"""Prepared data: one uncompressed .npz per data set, opened memory-mapped, so that it is never copied per process.

The file holds `train_images` and `test_images`, uint8 [N, C, H, W], or `train_features` and `test_features`, float32
[N, F]; `train_labels` and `test_labels`, int64 [N]; and `train_clients`, int64 [N], where the source says which client
each training sample belongs to. Beside it lies a small .json with the sha256 of the content, the shapes and the number
of labels.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.datasets.convert import array_names, to_prepared
from bflp.errors import DataError
from bflp.files import whole_file, write_text

_PREPARE = "(snakemake --cores 1 prepare_all)"


@dataclass(frozen=True)
class Dataset:
    """Inputs, images uint8 [N, C, H, W] or features float32 [N, F], and labels int64 [N] in [0, labels)."""

    train_inputs: NDArray[Any]
    train_labels: NDArray[np.int64]
    test_inputs: NDArray[Any]
    test_labels: NDArray[np.int64]
    train_clients: NDArray[np.int64] | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(C, H, W) or (F,)."""
        return self.train_inputs.shape[1:]

    @property
    def labels(self) -> int:
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays under the names that they have in a file."""
        inputs = "images" if self.train_inputs.dtype == np.uint8 else "features"
        result = {
            f"train_{inputs}": self.train_inputs,
            "train_labels": self.train_labels,
            f"test_{inputs}": self.test_inputs,
            "test_labels": self.test_labels,
        }
        return result if self.train_clients is None else {**result, "train_clients": self.train_clients}

    def content_hash(self) -> str:
        """sha256 of all arrays, with their names and shapes."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def summary(self) -> dict[str, Any]:
        """What the sidecar file and the data set table show."""
        described = summary(self.input_shape, self.train_labels, self.test_labels, self.train_clients)
        return {"sha256": self.content_hash(), **described}


def summary(
    input_shape: tuple[int, ...], train_labels: NDArray[Any], test_labels: NDArray[Any], clients: NDArray[Any] | None
) -> dict[str, Any]:
    """What can be said of a data set without its inputs; `clients` is how many different ones there are."""
    return {
        "input_shape": list(input_shape),
        "labels": int(max(train_labels.max(), test_labels.max())) + 1,
        "train_size": len(train_labels),
        "test_size": len(test_labels),
        **({} if clients is None else {"clients": len(np.unique(clients))}),
    }


def as_dataset(arrays: Mapping[str, Any]) -> Dataset:
    """The data set of checked arrays, brought into the prepared form."""
    return Dataset(*to_prepared(arrays).values())


def summary_file(data_file: Path) -> Path:
    """The small .json beside a prepared data file."""
    return data_file.with_suffix(".json")


def save(dataset: Dataset, path: Path) -> None:
    """Write the prepared file and its summary."""
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **dataset.arrays())
    write_text(summary_file(path), json.dumps(dataset.summary(), indent=1) + "\n")


def read_summary(data_file: Path) -> dict[str, Any]:
    """The summary of a prepared file. Raises DataError where it is missing or broken."""
    path = summary_file(data_file)
    try:
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        numbers = (summary["labels"], summary["train_size"], summary["test_size"], *summary["input_shape"])
        if not isinstance(summary["sha256"], str) or not all(isinstance(number, int) for number in numbers):
            raise TypeError
        return summary
    except FileNotFoundError:
        raise DataError(f"there is no {path}: prepare the data set first {_PREPARE}") from None
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} is broken: delete it and prepare the data set again {_PREPARE}") from None


def open_prepared(path: Path) -> Dataset:
    """Open a prepared file memory-mapped. Raises DataError where it is missing or broken."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = array_names([name.removesuffix(".npy") for name in archive.namelist()])
            arrays = [_map_member(path, archive.getinfo(f"{name}.npy")) for name in names]
    except FileNotFoundError:
        raise DataError(f"there is no {path}: prepare the data set first {_PREPARE}") from None
    except PermissionError:
        raise
    except Exception as error:  # whatever a damaged zip or npy header can raise
        raise DataError(f"{path} is broken ({error}): delete it and prepare the data set again {_PREPARE}") from None
    # Labels and clients are small and are read often: copied into memory, where they are aligned.
    return Dataset(*(array if array.ndim > 1 else np.array(array) for array in arrays))


def _map_member(path: Path, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Map one array of an uncompressed .npz."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError("it is compressed")
    with path.open("rb") as file:
        # The local header's name and extra field have their own lengths (zip format, section 4.3.7).
        file.seek(member.header_offset)
        header = file.read(30)
        if header[:4] != b"PK\x03\x04":
            raise ValueError("a local header is wrong")
        name_length, extra_length = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
        file.seek(name_length + extra_length, 1)
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"npy version {version}")
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        if fortran_order or dtype.hasobject:
            raise ValueError("an array has another layout")
        return np.memmap(path, dtype=dtype, mode="r", shape=shape, offset=file.tell())
