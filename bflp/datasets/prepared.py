"""Prepared data: one uncompressed .npz per data set, opened memory-mapped, so that it is never copied per process.

The file holds `train_images` and `test_images`, uint8 [N, C, H, W], `train_labels` and `test_labels`, int64 [N].
Beside it lies a small .json with the sha256 of the content, the shapes and the number of labels.
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

from bflp.errors import DataError
from bflp.files import whole_file, write_text

NAMES = ("train_images", "train_labels", "test_images", "test_labels")
# The smallest side for which the network's second pooling leaves a pixel.
SMALLEST_SIDE = 16


@dataclass(frozen=True)
class Dataset:
    """Images uint8 [N, C, H, W] and labels int64 [N] in [0, labels)."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    @property
    def labels(self) -> int:
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1

    def content_hash(self) -> str:
        """sha256 of all images and labels, with their shapes."""
        digest = hashlib.sha256()
        for name in NAMES:
            array = getattr(self, name)
            digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def summary(self) -> dict[str, Any]:
        """What the sidecar file and the data set table show."""
        return {
            "sha256": self.content_hash(),
            "image_shape": list(self.image_shape),
            "labels": self.labels,
            "train_size": len(self.train_labels),
            "test_size": len(self.test_labels),
        }


def summary_file(data_file: Path) -> Path:
    """The small .json beside a prepared data file."""
    return data_file.with_suffix(".json")


def save(dataset: Dataset, path: Path) -> None:
    """Write the prepared file and its summary."""
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **{name: getattr(dataset, name) for name in NAMES})
    write_text(summary_file(path), json.dumps(dataset.summary(), indent=1) + "\n")


def read_summary(data_file: Path) -> dict[str, Any]:
    """The summary of a prepared file. Raises DataError where it is missing or broken."""
    path = summary_file(data_file)
    try:
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        numbers = (summary["labels"], summary["train_size"], summary["test_size"], *summary["image_shape"])
        if not isinstance(summary["sha256"], str) or not all(isinstance(number, int) for number in numbers):
            raise TypeError
        return summary
    except FileNotFoundError:
        raise DataError(f"there is no {path}: prepare the data set first (snakemake --cores 1 prepare_all)") from None
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"{path} is broken: delete it and prepare the data set again (snakemake --cores 1 prepare_all)"
        ) from None


def open_prepared(path: Path) -> Dataset:
    """Open a prepared file memory-mapped. Raises DataError where it is missing or broken."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {name: _map_member(path, archive.getinfo(f"{name}.npy")) for name in NAMES}
    except FileNotFoundError:
        raise DataError(f"there is no {path}: prepare the data set first (snakemake --cores 1 prepare_all)") from None
    except PermissionError:
        raise
    except Exception as error:  # whatever a damaged zip or npy header can raise
        raise DataError(
            f"{path} is broken ({error}): delete it and prepare the data set again (snakemake --cores 1 prepare_all)"
        ) from None
    # Labels are small and are read often: copied into memory, where they are aligned.
    return Dataset(**{name: array if name.endswith("images") else np.array(array) for name, array in arrays.items()})


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


def load_source(path: Path) -> Dataset:
    """Read and check an .npz of a person's own.

    It must hold the four arrays of this module: images uint8 [N, C, H, W] (or [N, H, W]), labels whole numbers
    [N] from 0. Raises DataError naming the file and what is wrong with it.
    """
    return as_dataset(_read_source(path, NAMES))


def check_source(path: Path) -> int:
    """Check an .npz as `load_source` does, images by their headers alone; return the number of training samples."""
    return len(_read_source(path, ("train_labels", "test_labels"))["train_labels"])


def missing_source(path: Path) -> DataError:
    """What to raise where a source file is not there."""
    return DataError(f"{path}: there is no such file (it is a `source:` of the config)")


def _read_source(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise missing_source(path)
    try:
        if not zipfile.is_zipfile(path):
            raise DataError("is no whole .npz file (an .npz is a zip archive of arrays, see numpy.savez)")
        with np.load(path, allow_pickle=False) as archive:
            headers = {name: _header(archive, name) for name in NAMES}
            _check_headers(headers)
            arrays = {name: archive[name] for name in names}
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, zipfile.LargeZipFile) as error:
        raise DataError(f"{path}: is no whole .npz file ({error})") from None
    except Exception as error:  # zlib.error and others that a damaged archive can raise
        raise DataError(f"{path}: is damaged ({type(error).__name__}: {error})") from None
    try:
        _check_labels(arrays)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return arrays


def as_dataset(arrays: Mapping[str, NDArray[Any]]) -> Dataset:
    """Bring checked arrays into the prepared form: gray images get a channel axis, labels become int64."""
    prepared: dict[str, NDArray[Any]] = {}
    for name in NAMES:
        array = arrays[name]
        if name.endswith("images"):
            image = array[:, None] if array.ndim == 3 else array
            prepared[name] = np.ascontiguousarray(image, dtype=np.uint8)
        else:
            prepared[name] = np.ascontiguousarray(array, dtype=np.int64)
    return Dataset(**prepared)


def _header(archive: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    if name not in archive.files:
        raise DataError(f"has no array {name!r} (it must hold {', '.join(NAMES)})")
    with archive.zip.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        return shape, dtype


def _check_headers(headers: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
    for split in ("train", "test"):
        shape, dtype = headers[f"{split}_images"]
        if dtype != np.uint8:
            raise DataError(f"{split}_images has dtype {dtype}, must be uint8 (0 to 255)")
        if len(shape) not in (3, 4):
            raise DataError(
                f"{split}_images has shape {shape}, must be [N, channels, height, width] or [N, height, width]"
            )
        if len(shape) == 4 and shape[3] < SMALLEST_SIDE <= min(shape[1:3]):
            raise DataError(
                f"{split}_images has shape {shape}, must be [N, channels, height, width]: "
                "channels come first, as after images.transpose(0, 3, 1, 2)"
            )
        if min(shape[-2:]) < SMALLEST_SIDE:
            raise DataError(
                f"{split}_images are {shape[-2]} x {shape[-1]} pixels, the network needs at least "
                f"{SMALLEST_SIDE} x {SMALLEST_SIDE}: enlarge or pad them"
            )
        if shape[0] == 0 or shape[-3] == 0:
            raise DataError(f"{split}_images has shape {shape}: it is empty")
        label_shape, label_dtype = headers[f"{split}_labels"]
        if not np.issubdtype(label_dtype, np.integer):
            raise DataError(f"{split}_labels has dtype {label_dtype}, must be a whole-number type")
        if label_shape != (shape[0],):
            raise DataError(f"{split}_labels has shape {label_shape}, must be ({shape[0]},): one per image")
    if headers["train_images"][0][1:] != headers["test_images"][0][1:]:
        shapes = " and ".join(str(headers[f"{split}_images"][0][1:]) for split in ("train", "test"))
        raise DataError(f"train and test images differ in shape: {shapes}")


def _check_labels(arrays: Mapping[str, NDArray[Any]]) -> None:
    train, test = arrays["train_labels"], arrays["test_labels"]
    for name, labels in (("train_labels", train), ("test_labels", test)):
        if labels.min() < 0:
            raise DataError(f"{name} holds {labels.min()}: labels out of range, they must count from 0")
    present = np.unique(train)
    largest = int(present[-1])
    if len(present) < 2:
        raise DataError("train_labels holds one label only: there is nothing to tell apart")
    missing = np.flatnonzero(present != np.arange(len(present)))
    if len(missing):
        raise DataError(
            f"train_labels are out of range: they go up to {largest}, but no sample has label {missing[0]} "
            "(labels must be 0, 1, 2, ... without gaps)"
        )
    if int(test.max()) > largest:
        raise DataError(f"test_labels holds {test.max()}: out of range, train_labels ends at {largest}")
