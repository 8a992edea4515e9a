"""The parameters that the clients of the last round trained, kept on demand (`keep_clients`).

A safetensors file: `vectors` float32 [K, D] and `clients` int64 [K], ascending; none of a cell that diverged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bflp.engine.round import Executor
from bflp.engine.work import Broadcast, Task, Train, TrainStack
from bflp.errors import DataError
from bflp.files import sha256_of
from bflp.runtime.tensors import AGAIN, read, reading, write


class Recording:
    """Runs tasks as `executor` does, and remembers the parameters [D] of the clients that it trained last."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.vectors: dict[int, Tensor] = {}

    def run(self, broadcast: Broadcast, tasks: Sequence[Task]) -> list[Any]:
        results = self.executor.run(broadcast, tasks)
        vectors = {}
        for task, done in zip(tasks, results, strict=True):
            if isinstance(task, Train):
                vectors[task.client] = done.local_model
            elif isinstance(task, TrainStack):
                vectors |= {client: each.local_model for client, each in zip(task.clients, done, strict=True)}
        self.vectors = vectors or self.vectors
        return results


def save_clients(file: Path, vectors: Mapping[int, Tensor], size: int) -> None:
    """Write the parameters [D] of clients; size: D. Raises OSError."""
    clients = sorted(vectors)
    stacked = torch.stack([vectors[client] for client in clients]) if clients else torch.zeros((0, size))
    tensors = {"vectors": stacked, "clients": torch.tensor(clients, dtype=torch.int64)}
    write(file, tensors)


def load_clients(file: Path, size: int, sha256: str | None = None) -> dict[int, Tensor]:
    """The parameters [D] by client. size: D; sha256: of the file, which the cell's result says. Raises DataError."""
    with reading(file):
        if sha256 not in (None, sha256_of(file)):
            raise DataError(f"{file} is not what the cell's training wrote: {AGAIN}")
        tensors, _ = read(file)
        vectors, clients = tensors["vectors"], tensors["clients"]
    if vectors.shape != (len(clients), size):
        raise DataError(f"{file} holds other parameters than the cell's network has: {AGAIN}")
    return dict(zip(clients.tolist(), vectors, strict=True))
