"""A user's .npz: what it must hold, checked so that each mistake is told in one line.

It holds the arrays of a prepared file (`convert.array_names`), in any of the forms that `convert.to_prepared` takes.
Whatever else it holds is left out.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.datasets.convert import array_names, has_channels_last
from bflp.datasets.prepared import Dataset, as_dataset, summary
from bflp.errors import DataError

Header = tuple[tuple[int, ...], np.dtype[Any]]


def load_source(path: Path) -> Dataset:
    """Read and check a source file. Raises DataError naming the file and what is wrong with it."""
    with _opened(path) as (archive, headers):
        arrays = {name: archive[name] for name in headers}
        _check_labels(arrays["train_labels"], arrays["test_labels"])
        with np.errstate(over="ignore"):
            dataset = as_dataset(arrays)
        for split, inputs in (("train", dataset.train_inputs), ("test", dataset.test_inputs)):
            if inputs.ndim == 2 and not np.isfinite(inputs).all():
                raise DataError(f"{split}_features holds NaN, infinity or what is too large for float32")
    return dataset


def check_source(path: Path) -> dict[str, Any]:
    """Check a source file as `load_source` does, its inputs by their headers alone. Raises DataError.

    Returns the summary that its prepared file will have, but for the hash.
    """
    with _opened(path) as (archive, headers):
        train, test = archive["train_labels"], archive["test_labels"]
        _check_labels(train, test)
        clients = archive["train_clients"] if "train_clients" in headers else None
        return summary(_check_headers(headers), train, test, clients)


def remarks(path: Path) -> list[str]:
    """What a user should know about how a source file is read: what is turned, and what is not used."""
    with _opened(path) as (archive, headers):
        turned = [name for name, (shape, _) in headers.items() if name.endswith("images") and has_channels_last(shape)]
        unused = sorted(set(archive.files) - set(headers))
    return [
        *([f"{' and '.join(turned)} had their channels last, now first"] if turned else []),
        *([f"not used: {', '.join(unused)}"] if unused else []),
    ]


def missing_source(path: Path) -> DataError:
    """What to raise where a source file is not there."""
    return DataError(f"{path}: there is no such file (it is a `source:` of the config)")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Header]]]:
    """The archive, and the checked headers of the arrays that are used.

    Whatever goes wrong while it is open is a DataError with the path.
    """
    if not path.is_file():
        raise missing_source(path)
    try:
        if not zipfile.is_zipfile(path):
            raise DataError("is not a whole .npz file (an .npz is a zip archive of arrays, see numpy.savez)")
        with np.load(path, allow_pickle=False) as archive:
            headers = {name: _header(archive, name) for name in array_names(archive.files)}
            _check_headers(headers)
            yield archive, headers
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # whatever a damaged archive can raise
        raise DataError(f"{path}: is damaged, or not an .npz file ({type(error).__name__}: {error})") from None


def _header(archive: Any, name: str) -> Header:
    if name not in archive.files:
        raise DataError(f"has no array {name!r} (it must hold {', '.join(array_names(archive.files)[:4])})")
    with archive.zip.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        return shape, dtype


def _check_headers(headers: Mapping[str, Header]) -> tuple[int, ...]:
    """The shape of one sample after preparing."""
    samples, shapes = {}, {}
    for name, (shape, dtype) in headers.items():  # inputs come before what goes with them
        split, what = name.split("_")
        if what in ("images", "features"):
            shapes[split] = (_image_shape if what == "images" else _feature_shape)(name, shape, dtype)
            samples[split] = shape[0]
            if 0 in shape:
                raise DataError(f"{name} has shape {shape}: it is empty")
        elif not np.issubdtype(dtype, np.integer):
            raise DataError(f"{name} has dtype {dtype}, must be a whole-number type")
        elif shape not in ((samples[split],), (samples[split], 1)):
            raise DataError(f"{name} has shape {shape}, must be ({samples[split]},): one per sample")
    if shapes["train"] != shapes["test"]:
        raise DataError(f"train and test inputs differ in shape: {shapes['train']} and {shapes['test']}")
    return shapes["train"]


def _image_shape(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """(C, H, W) after preparing."""
    if dtype != np.uint8:
        raise DataError(f"{name} has dtype {dtype}, must be uint8 (0 to 255)")
    if len(shape) not in (3, 4):
        raise DataError(f"{name} has shape {shape}, must be [N, channels, height, width] or [N, height, width]")
    if has_channels_last(shape):
        return shape[3], *shape[1:3]
    if len(shape) == 4 and shape[1] == shape[2] > shape[3]:
        raise DataError(
            f"{name} has shape {shape}, must be [N, channels, height, width]: "
            "channels come first, as after images.transpose(0, 3, 1, 2)"
        )
    return (1, *shape[1:]) if len(shape) == 3 else shape[1:]


def _feature_shape(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    if dtype not in (np.float32, np.float64):
        raise DataError(f"{name} has dtype {dtype}, must be float32 or float64")
    if len(shape) != 2:
        raise DataError(f"{name} has shape {shape}, must be [N, features]")
    return shape[1:]


def _check_labels(train: NDArray[Any], test: NDArray[Any]) -> None:
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
