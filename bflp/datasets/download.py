"""From raw files, or a person's own .npz, to the prepared file of a data set."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import pickle
import shutil
import socket
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bflp.datasets import prepared as arrays
from bflp.datasets.built_in import BuiltIn
from bflp.errors import DataError
from bflp.files import whole_file, write_text

# A firewall that drops packets would hold a download for minutes before it failed.
SECONDS_WITHOUT_ANSWER = 30.0


def prepare_source(source: Path, output: Path) -> None:
    """Write the prepared file `output` from a person's own .npz, and beside it that file's hash. Raises DataError."""
    if not source.is_file():
        raise arrays.missing_source(source)
    stamp = {**_stat(source), "sha256": _file_hash(source)}
    arrays.save(arrays.load_source(source), output)
    write_text(_stamp_file(output), json.dumps(stamp) + "\n")


def prepare_built_in(name: str, built_in: BuiltIn, raw_folder: Path, output: Path) -> None:
    """Write the prepared file `output` through torchvision. Raises DataError.

    Raw files that are in `raw_folder` already are used without the network.
    """
    arrays.save(_through_torchvision(built_in, name, raw_folder), output)


def source_hash(source: Path, output: Path) -> str:
    """sha256 of a source file; taken from beside the prepared file while size and time of the source are the same."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stamp = json.loads(_stamp_file(output).read_text(encoding="utf-8"))
        if {key: stamp[key] for key in ("size", "mtime_ns")} == _stat(source):
            return str(stamp["sha256"])
    return _file_hash(source)


def is_current(source: Path, output: Path) -> bool:
    """Whether the prepared file `output` was made from what the source file holds now."""
    try:
        made_from = json.loads(_stamp_file(output).read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(made_from == _file_hash(source))


def _stamp_file(output: Path) -> Path:
    return output.with_suffix(".source.json")


def _stat(source: Path) -> dict[str, int]:
    stat = source.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _file_hash(source: Path) -> str:
    if not source.is_file():
        raise arrays.missing_source(source)
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def raw_files(built_in: BuiltIn, raw_folder: Path) -> list[Path]:
    """Where torchvision looks for a data set's raw files."""
    return [raw_folder / built_in.folder / name for name in built_in.files]


def _through_torchvision(built_in: BuiltIn, name: str, raw_folder: Path) -> arrays.Dataset:
    from torchvision import datasets

    make = getattr(datasets, built_in.torchvision_class)
    raw_folder.mkdir(parents=True, exist_ok=True)
    _distrust_unpacked(built_in, name, raw_folder)
    _unpack(built_in, raw_folder)
    loaded: dict[str, NDArray[Any]] = {}
    for split in ("train", "test"):
        choice = {"train": split == "train"} if built_in.split == "train" else {"split": split}
        try:
            with _impatient(), _only_arrays_are_unpickled():
                data = make(root=str(raw_folder), download=True, **choice)
        except Exception as error:  # torchvision raises what urllib, tarfile, hashlib and scipy raise
            raise DataError(_how_to_get(built_in, name, raw_folder, error)) from None
        loaded[f"{split}_images"] = _channels_first(np.asarray(data.data))
        loaded[f"{split}_labels"] = np.asarray(data.labels if built_in.split == "split" else data.targets)
    sizes = tuple(len(loaded[f"{split}_labels"]) for split in ("train", "test"))
    if sizes != (built_in.train_size, built_in.test_size):
        raise DataError(
            f"{name}: the raw files below {raw_folder} hold {sizes[0]} training and {sizes[1]} test images, "
            f"{built_in.title} has {built_in.train_size} and {built_in.test_size}: delete them and get them anew"
        )
    dataset = arrays.as_dataset(loaded)
    if built_in.sha256 and dataset.content_hash() != built_in.sha256:
        raise DataError(
            f"{name}: the raw files below {raw_folder} are not those of {built_in.title}: delete them and get them anew"
        )
    return dataset


def _distrust_unpacked(built_in: BuiltIn, name: str, raw_folder: Path) -> None:
    """Let torchvision unpack .gz files anew: it checks their checksums, but takes what is unpacked as it is.

    Raises DataError for what would be used unchecked.
    """
    for packed in raw_files(built_in, raw_folder):
        unpacked = packed.with_suffix("")
        if packed.suffix != ".gz" or not unpacked.exists() or built_in.sha256:
            continue
        if not packed.exists():
            raise DataError(f"{name}: {unpacked} can not be checked without {packed.name}: add that, or delete it")
        unpacked.unlink()
    processed = (raw_folder / built_in.folder).parent / "processed"
    if built_in.folder and processed.exists():
        raise DataError(f"{name}: {processed} is of an old torchvision and would be used unchecked: delete it")


class _ArraysUnpickler(pickle.Unpickler):
    """Reads arrays, texts, numbers and containers of them; whatever else a pickle names is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("._core", ".core"), name) in {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a raw file would call {module}.{name}")


@contextlib.contextmanager
def _only_arrays_are_unpickled() -> Iterator[None]:
    """CIFAR's batches are pickles. torchvision checks their checksums first; and nothing in them could do harm."""
    from torchvision.datasets import cifar

    before = cifar.pickle
    cifar.pickle = types.SimpleNamespace(load=lambda file, **options: _ArraysUnpickler(file, **options).load())
    try:
        yield
    finally:
        cifar.pickle = before


def _unpack(built_in: BuiltIn, raw_folder: Path) -> None:
    """Unpack raw .gz files that are in place, where the content's hash is known.

    torchvision refuses those that were compressed anew, as Debian's are. It gets anew what is damaged.
    """
    for packed in raw_files(built_in, raw_folder) if built_in.sha256 else []:
        unpacked = packed.with_suffix("")
        if packed.suffix == ".gz" and packed.exists() and not unpacked.exists():
            with (
                contextlib.suppress(OSError, EOFError, zlib.error),
                whole_file(unpacked) as temporary,
                gzip.open(packed) as source,
                temporary.open("wb") as target,
            ):
                shutil.copyfileobj(source, target)


@contextlib.contextmanager
def _impatient() -> Iterator[None]:
    """Let connections fail that give no answer."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SECONDS_WITHOUT_ANSWER)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _channels_first(images: NDArray[Any]) -> NDArray[Any]:
    # CIFAR comes as [N, H, W, C]; SVHN and the gray sets come as they are wanted.
    return images.transpose(0, 3, 1, 2) if images.ndim == 4 and images.shape[-1] == 3 else images


def _how_to_get(built_in: BuiltIn, name: str, raw_folder: Path, error: Exception) -> str:
    paths = raw_files(built_in, raw_folder)
    missing = ", ".join(str(path) for path in paths if not path.exists())
    reason = " ".join(str(error).split()) or type(error).__name__
    if missing:
        how = f"Without network, put the original file(s) here, unchanged: {missing}"
    else:
        how = f"A raw file is damaged: delete them and get the originals anew: {', '.join(map(str, paths))}"
    return (
        f"{name} ({built_in.title}) could not be downloaded or read ({reason}). {how} - or name an .npz of your own in "
        f"the config: datasets: {{{name}: {{source: path/to/{name}.npz}}}} (its form is described in docs/data.md)"
    )
