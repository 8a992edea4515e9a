"""A table: its headers, its rows and its numbers, and what of a number is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MISSING = "—"
MOST_DECIMALS = 4
DIFFERS = "†"


@dataclass(frozen=True)
class Entry:
    """One number of a table: mean and standard error over `seeds` of `wanted` seeds; 0 seeds: missing or diverged.

    digits: the decimals that are shown of an ordinary number; differs: it gets the mark DIFFERS.
    """

    mean: float = math.nan
    standard_error: float = math.nan
    seeds: int = 0
    wanted: int = 0
    bold: bool = False
    diverged: int = 0
    digits: int = 2
    differs: bool = False


Row = tuple[Sequence[str], Sequence[Entry | str]]  # labels, values
TableBlock = tuple[str, Sequence[Row]]  # title, rows


@dataclass(frozen=True)
class Table:
    """A table for any of the formats.

    groups: (title, number of columns) of the upper header, over the value columns; columns: the lower header;
    blocks: (title, rows), each row its labels and its values; labels: headers of the block's and the rows' labels.
    """

    name: str
    caption: str
    labels: Sequence[str]
    groups: Sequence[tuple[str, int]]
    columns: Sequence[str]
    blocks: Sequence[TableBlock]


def shown(value: Entry | str, escape: Callable[[str], str], bold: str, error: str, seeds: str) -> str:
    """What a table shows of a value: a mean with its standard error and, where not all have run, its seeds n/m.

    bold, error, seeds: templates with which a format sets these parts of a number; escape: how it prints words.
    """
    if isinstance(value, str):
        return escape(value)
    if value.diverged:
        return escape(f"diverged ({value.diverged}/{value.wanted})")
    if not value.seeds:
        return escape(MISSING)
    decimals = decimals_of((value.mean, value.standard_error), value.digits)
    text = f"{value.mean:z.{decimals}f}"  # z: never a minus zero
    if value.bold:
        text = bold.format(text)
    if not math.isnan(value.standard_error):
        text += error.format(f"{value.standard_error:.{decimals}f}")
    if value.differs:
        text += escape(DIFFERS)
    return text + (seeds.format(f"{value.seeds}/{value.wanted}") if value.seeds < value.wanted else "")


def decimals_of(numbers: Sequence[float], digits: int) -> int:
    """How many decimals to show of numbers that stand together: `digits`, or as many as each of them needs for its
    first significant digit, at most 4. What even 4 decimals show as zero counts as zero and needs none."""
    needed = [
        next((count for count in range(digits, MOST_DECIMALS + 1) if float(f"{number:.{count}f}")), digits)
        for number in numbers
    ]
    return max([digits, *needed])
