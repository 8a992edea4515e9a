"""From raw files, or a user's .npz, to the prepared file of a data set."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import zlib
from pathlib import Path
from typing import Any

from bflp.datasets.prepared import Dataset, as_dataset, save
from bflp.datasets.registry import BuiltIn
from bflp.datasets.source import load_source, missing_source, remarks
from bflp.errors import DataError
from bflp.files import sha256_of, whole_file, write_text

# A firewall that drops packets would hold a download for minutes before it failed.
SECONDS_WITHOUT_ANSWER = 30.0


def prepare_source(source: Path, output: Path) -> list[str]:
    """Write the prepared file `output` from a user's .npz, and beside it that file's hash. Raises DataError.

    Returns remarks for the user: what was turned, and what is not used.
    """
    if not source.is_file():
        raise missing_source(source)
    stamp = {**_stat(source), "sha256": _file_hash(source)}
    save(load_source(source), output)
    write_text(_stamp_file(output), json.dumps(stamp) + "\n")
    return remarks(source)


def prepare_built_in(name: str, built_in: BuiltIn, raw_folder: Path, output: Path) -> None:
    """Write the prepared file `output` through torchvision. Raises DataError.

    Raw files that are in `raw_folder` already are used without the network.
    """
    save(_through_torchvision(built_in, name, raw_folder), output)


def source_hash(source: Path, output: Path) -> str:
    """sha256 of a source file; taken from beside the prepared file while the source `is_untouched`."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if is_untouched(source, output):
            return str(json.loads(_stamp_file(output).read_text(encoding="utf-8"))["sha256"])
    return _file_hash(source)


def is_untouched(source: Path, output: Path) -> bool:
    """Whether the prepared file `output` was made from this source file, of the size and time that it has now."""
    try:
        stamp = json.loads(_stamp_file(output).read_text(encoding="utf-8"))
        found = _stat(source)
        return found == {key: stamp[key] for key in found}
    except (OSError, ValueError, KeyError, TypeError):
        return False


def is_current(source: Path, output: Path) -> bool:
    """Whether the prepared file `output` was made from what the source file holds now."""
    try:
        made_from = json.loads(_stamp_file(output).read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(made_from == _file_hash(source))


def _stamp_file(output: Path) -> Path:
    return output.with_suffix(".source.json")


def _stat(source: Path) -> dict[str, str | int]:
    stat = source.stat()
    return {"path": str(source.resolve()), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _file_hash(source: Path) -> str:
    if not source.is_file():
        raise missing_source(source)
    return sha256_of(source)


def raw_files(built_in: BuiltIn, raw_folder: Path) -> list[Path]:
    """Where torchvision looks for a data set's raw files."""
    return [raw_folder / built_in.folder / name for name in built_in.files]


def _through_torchvision(built_in: BuiltIn, name: str, raw_folder: Path) -> Dataset:
    from torchvision import datasets

    make = getattr(datasets, built_in.torchvision_class)
    raw_folder.mkdir(parents=True, exist_ok=True)
    _unpack(built_in, raw_folder)
    loaded: dict[str, Any] = {}
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SECONDS_WITHOUT_ANSWER)
    try:
        for split in ("train", "test"):
            choice = {"train": split == "train"} if built_in.split == "train" else {"split": split}
            data = make(root=str(raw_folder), download=True, **choice)
            loaded[f"{split}_images"] = data.data
            loaded[f"{split}_labels"] = data.labels if built_in.split == "split" else data.targets
    except Exception as error:  # torchvision raises what urllib, tarfile, hashlib and scipy raise
        raise DataError(_how_to_get(built_in, name, raw_folder, error)) from None
    finally:
        socket.setdefaulttimeout(timeout)
    sizes = tuple(len(loaded[f"{split}_labels"]) for split in ("train", "test"))
    if sizes != (built_in.train_size, built_in.test_size):
        raise DataError(
            f"{name}: the raw files below {raw_folder} hold {sizes[0]} training and {sizes[1]} test images, "
            f"{built_in.title} has {built_in.train_size} and {built_in.test_size}: delete them and download them again"
        )
    dataset = as_dataset(loaded)
    if built_in.sha256 and dataset.content_hash() != built_in.sha256:
        raise DataError(
            f"{name}: the raw files below {raw_folder} are not those of {built_in.title}: "
            "delete them and download them again"
        )
    return dataset


def _unpack(built_in: BuiltIn, raw_folder: Path) -> None:
    """Remove unpacked files whose .gz is there: torchvision checks the .gz, but would take the unpacked as they are.

    Where the content's hash is known they are unpacked here, since torchvision refuses a .gz that was compressed again,
    as Debian's are. It downloads what is damaged.
    """
    for packed in raw_files(built_in, raw_folder):
        unpacked = packed.with_suffix("")
        if packed.suffix != ".gz" or not packed.exists():
            continue
        if not built_in.sha256:
            unpacked.unlink(missing_ok=True)
            continue
        with contextlib.suppress(gzip.BadGzipFile, EOFError, zlib.error), whole_file(unpacked) as temporary:
            temporary.write_bytes(gzip.decompress(packed.read_bytes()))


def _how_to_get(built_in: BuiltIn, name: str, raw_folder: Path, error: Exception) -> str:
    paths = raw_files(built_in, raw_folder)
    missing = ", ".join(str(path) for path in paths if not path.exists())
    reason = " ".join(str(error).split()) or type(error).__name__
    if missing:
        how = f"Without network, put the original file(s) here, unchanged: {missing}"
    else:
        how = f"A raw file is damaged: delete them and download the originals again: {', '.join(map(str, paths))}"
    return (
        f"{name} ({built_in.title}) could not be downloaded or read ({reason}). {how} - or name an .npz of your own in "
        f"the config: datasets: {{{name}: {{source: path/to/{name}.npz}}}} (its form is described in docs/data.md)"
    )
