"""What a training program and its workers are told. Imports no torch, so that it can be read before torch is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bflp.errors import UserError


@dataclass(frozen=True)
class Job:
    """One cell to train.

    cell: its six coordinates; settings: what determines its result; fingerprint: of the code; aggregator_file: a rule
    outside the package, or None; data_file, partition_file: its inputs; device: "cpu" or "cuda" (with an index);
    ood_file: the prepared out-of-distribution data set, or None; partition_fingerprint: of the code that makes
    partitions now, or None where it is not to be checked.
    """

    cell: dict[str, Any]
    settings: dict[str, Any]
    fingerprint: str
    aggregator_file: str | None
    data_file: Path
    partition_file: Path
    device: str = "cpu"
    ood_file: Path | None = None
    partition_fingerprint: str | None = None

    @classmethod
    def parse(cls, text: str, data_file: Path, partition_file: Path, device: str, ood_file: Path | None = None) -> Job:
        """From the canonical string that the plan of the grid makes. Raises UserError."""
        try:
            job = json.loads(text)
            return cls(
                job["cell"],
                job["settings"],
                job["fingerprint"],
                job.get("aggregator_file"),
                data_file,
                partition_file,
                device,
                ood_file,
                job.get("partition_fingerprint"),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"the job is no string that the workflow makes ({error})") from None

    @property
    def variational(self) -> bool:
        return "posterior" in self.settings

    @property
    def seed(self) -> int:
        seed: int = self.cell["seed"]
        return seed

    def __str__(self) -> str:
        return "{dataset}/{partition}/{clients}/{model}/{aggregator}/seed{seed}".format(**self.cell)
