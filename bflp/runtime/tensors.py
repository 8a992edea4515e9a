"""Safetensors files that a cell's training writes: checksums, and what reading a damaged one says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from bflp.errors import DataError
from bflp.files import canonical_json

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


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """sha256 of tensors, in the order of their names, and of what stands beside them."""
    digest = hashlib.sha256(canonical_json(metadata).encode())
    for name in sorted(tensors):
        array = tensors[name].numpy()
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()
