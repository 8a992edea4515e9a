"""Checkpoints: all that the remaining rounds of a cell depend on, in safetensors with JSON, never a pickle.

Randomness has addresses, so the model, the algorithm's state, the round and the histories are all; what clients
remember lies beside it (bflp.runtime.states). A cell's checkpoint bears its identity, so
that those of other settings, code or data stay beside it; it stays when the cell is done, so that a run of more rounds
goes on from there. One that is damaged is set aside.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bflp.engine.work import Broadcast
from bflp.runtime.kept import checkpoint_round
from bflp.runtime.tensors import read, write

FORMAT = "4"
SUFFIX = ".checkpoint.safetensors"


@dataclass
class Progress:
    """Where a cell stands after `round` rounds.

    server: the model [D] and the algorithm's state; rounds: the evaluated rounds; timing: lists of seconds; resumed_at:
    rounds at which it went on; traffic: lists of bytes; ece_bins: of the curves' ECE; states: which states of clients
    it counts on (`states.digest`).
    """

    round: int
    server: Broadcast
    rounds: list[dict[str, Any]] = field(default_factory=list)
    timing: dict[str, Any] = field(default_factory=dict)
    resumed_at: list[int] = field(default_factory=list)
    traffic: dict[str, list[int]] = field(default_factory=dict)
    ece_bins: int | None = None  # this and states: None in checkpoints of earlier versions
    states: str | None = None

    def history(self) -> str:
        """All but the tensors, as JSON."""
        return json.dumps({key: value for key, value in vars(self).items() if key != "server"})


class Checkpoints:
    """The checkpoint of a cell in `folder`; identity: from `Job.identity`, ending in the number of rounds."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder, self.identity = folder, identity
        self.base, _, rounds = identity.rpartition("-")
        self.rounds = int(rounds)
        self.file = folder / f"{identity}{SUFFIX}"

    def save(self, progress: Progress) -> None:
        """Replace the checkpoint. Raises OSError."""
        tensors = {"model": progress.server.model, **{f"state.{k}": v for k, v in progress.server.state.items()}}
        write(self.file, tensors, format=FORMAT, identity=self.base, history=progress.history())

    def newest(self, most: int | None = None, fits: Callable[[Progress], bool] = lambda _: True) -> Progress | None:
        """The one that is farthest, of this run or of another number of rounds; None where there is none.

        most: after which round at most; fits: whether one may be used. Says on stderr what is damaged. Raises OSError
        where one cannot be opened.
        """
        limit = self.rounds if most is None else most
        found = [self._read(file) for file in sorted(self.folder.glob(f"{self.base}-*{SUFFIX}"))]
        usable = [progress for progress in found if progress is not None and progress.round <= limit]
        return next(filter(fits, sorted(usable, key=lambda progress: -progress.round)), None)

    def rounds_saved(self) -> list[int]:
        """The rounds of all checkpoints of this cell with these settings, whatever their number of rounds."""
        return [checkpoint_round(file) for file in self.folder.glob(f"{self.base}-*{SUFFIX}")]

    def _read(self, file: Path) -> Progress | None:
        try:
            # One that cannot be opened is not damaged; safe_open says of each such file that there is none.
            file.open("rb").close()
        except FileNotFoundError:  # removed in this moment
            return None
        try:
            tensors, metadata = read(file)
            if (metadata["format"], metadata["identity"]) != (FORMAT, self.base):
                return None
            model = tensors.pop("model")
            state = {name.removeprefix("state."): tensor for name, tensor in tensors.items()}
            return Progress(server=Broadcast(model, state), **json.loads(metadata["history"]))
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            aside = file.with_suffix(".damaged")
            file.replace(aside)
            print(f"warning: the checkpoint {file} is damaged ({error}); set aside as {aside.name}", file=sys.stderr)
            return None
