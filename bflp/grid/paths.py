"""Where every file of a run lies. docs/results.md says what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bflp.grid.cell import Cell


@dataclass(frozen=True)
class Paths:
    """The files below the folders `results_dir` and `data_dir` of the settings."""

    results: Path
    data_dir: Path

    def result(self, cell: Cell) -> Path:
        return cell.path(self.results / "cells", ".json")

    def model(self, cell: Cell) -> Path:
        return cell.path(self.results / "cells", ".safetensors")

    def clients(self, cell: Cell) -> Path:
        """The models of the last round's clients, where they are kept."""
        return cell.path(self.results / "cells", ".clients.safetensors")

    def evaluation(self, cell: Cell) -> Path:
        return cell.path(self.results / "evaluations", ".json")

    def progress(self, cell: Cell) -> Path:
        """How far the cell is, or how it ended; beside it its lock."""
        return cell.path(self.results / "progress", ".json")

    def log(self, cell: Cell) -> Path:
        return cell.path(self.results / "logs" / "train", ".log")

    def round_time(self, cell: Cell, processes: int) -> Path:
        return cell.path(self.results / "round_time", f"-processes{processes}.json")

    def partition(self, dataset: str, partition: str, clients: int, seed: int) -> Path:
        """clients: their number, since set-ups of as many clients share partitions."""
        return Path(self.results, "partitions", dataset, partition, str(clients), f"seed{seed}.npz")

    def evaluated(self, dataset: str, partition: str, clients: str) -> Path:
        """The index of a block's evaluations: a digest of each."""
        return Path(self.results, "evaluated", dataset, partition, f"{clients}.json")

    @property
    def kept(self) -> Path:
        """What earlier settings or code made, and checkpoints: {identity}.*"""
        return self.results / "kept"

    @property
    def merged(self) -> Path:
        return self.results / "results.csv"

    @property
    def merged_rounds(self) -> Path:
        return self.results / "rounds.csv"

    def data(self, dataset: str) -> Path:
        """The prepared data set."""
        return self.data_dir / f"{dataset}.npz"

    def made(self, dataset: str) -> Path:
        """Beside the prepared file: what it was made from, and by what code."""
        return self.data_dir / f"{dataset}.made.json"
