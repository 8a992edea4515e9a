"""What clients remember between rounds, one file per client and round on disk, so that many clients need no memory.

A client that was not drawn keeps its state bit for bit. States are part of a cell's checkpoint: after a kill those that
are newer than the checkpoint are not used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bflp.engine.local import State
from bflp.files import canonical_json
from bflp.runtime.tensors import read, reading, write


class ClientStates:
    """The states below `folder`; an empty one for a client that has not trained yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, client: int, round_: int) -> State:
        """The state of a client before a round."""
        earlier = [known for known in self._rounds(client) if known < round_]
        if not earlier:
            return {}
        file = self._file(client, max(earlier))
        with reading(file):
            return read(file)[0]

    def newest(self, round_: int) -> dict[int, int]:
        """Of which round each client's state is after `round_`, where it has one."""
        clients = [int(folder.name) for folder in self.folder.glob("*") if folder.name.isdecimal()]
        known = {client: [each for each in self._rounds(client) if each <= round_] for client in clients}
        return {client: max(rounds) for client, rounds in known.items() if rounds}

    def save(self, round_: int, states: dict[int, State]) -> None:
        """Write the states of clients after a round."""
        for client, state in states.items():
            write(self._file(client, round_), state)

    def forget(self, clients: Iterable[int], checkpoints: Sequence[int]) -> None:
        """Of these clients drop what no checkpoint goes on from; checkpoints: the rounds of those that are there."""
        for client in clients:
            known = self._rounds(client)
            needed = {max((each for each in known if each <= round_), default=0) for round_ in checkpoints}
            for old in known:
                if old not in needed and old < max(checkpoints):
                    self._file(client, old).unlink(missing_ok=True)

    def _rounds(self, client: int) -> list[int]:
        return [int(file.stem) for file in (self.folder / str(client)).glob("*.safetensors") if file.stem.isdecimal()]

    def _file(self, client: int, round_: int) -> Path:
        return self.folder / str(client) / f"{round_}.safetensors"


def digest(newest: Mapping[int, int]) -> str:
    """Of `ClientStates.newest`."""
    return hashlib.sha256(canonical_json(sorted(newest.items())).encode()).hexdigest()
