"""Where a cell's files are, and how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CellFiles:
    """What a cell reads and writes. kept: the folder of what is kept; ood: may not be there yet; clients: where the
    models of the last round's clients are kept, None where they are not asked for."""

    data: Path
    partition: Path
    result: Path
    model: Path
    evaluation: Path
    progress: Path
    kept: Path
    ood: Path | None = None
    clients: Path | None = None


@dataclass(frozen=True)
class Options:
    """How a cell is run; nothing of it changes the model.

    evaluation: from `Plan.evaluation_of`; run: of Snakemake, which tries a cell that failed again; empty by hand.
    """

    evaluation: Mapping[str, Any]
    processes: int = 1
    device: str = "auto"
    cells_per_gpu: int = 1
    checkpoint_seconds: float = 2.0
    on_divergence: str = "stop"
    run: str = ""

    @property
    def ece_bins(self) -> int:
        """Of the curves' ECE."""
        bins: int = self.evaluation["settings"]["ece_bins"]
        return bins
