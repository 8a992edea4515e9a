"""Reading safetensors files that a cell's training wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from bflp.errors import DataError

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
