"""A cell of the grid: one federated experiment."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bflp.errors import ConfigError

NO_AGGREGATOR = "none"


@dataclass(frozen=True, order=True)
class Cell:
    """The six coordinates. clients: the name of a set-up; aggregator: `none` for a method without a rule."""

    dataset: str
    partition: str
    clients: str
    model: str
    aggregator: str
    seed: int

    @property
    def block(self) -> tuple[str, str, str]:
        """Data set, partition and set-up: what cells share that are compared with one another."""
        return self.dataset, self.partition, self.clients

    @property
    def row(self) -> tuple[str, str]:
        """Model and aggregator: a row of the tables."""
        return self.model, self.aggregator

    def path(self, folder: str | Path, suffix: str) -> Path:
        """The cell's file below `folder`, with the fixed names."""
        return Path(folder, *self.block, *self.row, f"seed{self.seed}{suffix}")

    def as_dict(self) -> dict[str, Any]:
        """As in the JSON of a result."""
        return asdict(self)

    def __str__(self) -> str:
        return str(self.path("", ""))

    @classmethod
    def parse(cls, text: str) -> Cell:
        """From "dataset/partition/clients/model/aggregator/seedN". Raises ConfigError."""
        parts = text.strip("/").split("/")
        if len(parts) != 6 or not re.fullmatch(r"seed\d+", parts[5]):
            raise ConfigError(f"the cell {text!r} must be dataset/partition/clients/model/aggregator/seedN")
        dataset, partition, clients, model, aggregator, seed = parts
        return cls(dataset, partition, clients, model, aggregator, int(seed.removeprefix("seed")))
