"""What a training program is told: one cell, as one canonical string that Snakemake compares."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bflp.errors import UserError
from bflp.files import canonical_json
from bflp.grid.cell import Cell

# Settings that may name a person's own file. The fingerprint covers its content; of a split there is a hash beside it.
WITH_FILES = ("algorithm", "network", "partition")


@dataclass(frozen=True)
class Job:
    """settings: what determines the result; fingerprint: of the code that can change it; partition_fingerprint: of the
    code that makes partitions; files: the user's own files by role, as {"aggregator": "mine.py"}."""

    cell: Cell
    settings: Mapping[str, Any]
    fingerprint: str
    partition_fingerprint: str
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Job:
        """From the string that the plan of the grid makes. Raises UserError."""
        try:
            parts = json.loads(text)
            return cls(**{**parts, "cell": Cell(**parts["cell"])})
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"malformed --job: {error}") from None

    def as_dict(self) -> dict[str, Any]:
        """What the string holds."""
        return {**vars(self), "cell": self.cell.as_dict()}

    def identity(self, data: str) -> str:
        """A name for all that the result depends on, data: the data set's content hash.

        The number of rounds stands apart, behind a dash: a longer run may go on from where a shorter one ended.
        """
        setup = dict(self.settings["setup"])
        rounds = setup.pop("rounds")
        depends = [self.cell.as_dict(), without_paths({**self.settings, "setup": setup}), self.fingerprint, data]
        return f"{hashlib.sha256(canonical_json(depends).encode()).hexdigest()[:24]}-{rounds}"

    def __str__(self) -> str:
        return str(self.cell)


def without_paths(settings: Mapping[str, Any], of: Iterable[str] = WITH_FILES) -> dict[str, Any]:
    """A cell's settings without the paths of files: the same content elsewhere gives the same result."""
    plain = {key: {part: given for part, given in settings.get(key, {}).items() if part != "file"} for key in of}
    return {key: plain.get(key, value) for key, value in settings.items()}
