"""Safetensors files with a checksum, that a cell's training writes, and what reading a damaged one says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bflp.errors import DataError
from bflp.files import canonical_json, whole_file

AGAIN = "delete it and run snakemake again"


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Raise DataError, with what to do, where reading `file` fails: it is missing or damaged."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(
            f"{file} is not there, though the cell's result is: delete that and run snakemake again"
        ) from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise DataError(f"{file} is damaged ({error}): {AGAIN}") from None


def write(file: Path, tensors: Mapping[str, Tensor], **metadata: str) -> None:
    """Write tensors, what is to stand beside them, and a checksum of both. Raises OSError."""
    # Copies: safetensors refuses those that share memory.
    whole = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    with whole_file(file) as temporary:
        # Not by safetensors' own function: it hides the system's error, and makes files that only their owner can read.
        temporary.write_bytes(save(whole, metadata={**metadata, "checksum": _checksum(whole, metadata)}))


def read(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `write` wrote. Raises SafetensorError, ValueError or KeyError for a file that is damaged."""
    with safe_open(file, framework="pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        metadata = dict(opened.metadata() or {})
    if metadata.pop("checksum") != _checksum(tensors, metadata):
        raise ValueError("its checksum is wrong")
    return tensors, metadata


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """sha256 of tensors, in the order of their names, and of what stands beside them."""
    digest = hashlib.sha256(canonical_json(metadata).encode())
    for name in sorted(tensors):
        array = tensors[name].numpy()
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()
