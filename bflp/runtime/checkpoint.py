"""Checkpoints: all that the remaining rounds of a cell depend on, in safetensors with JSON, never a pickle.

Randomness has addresses, so the model, the round and the histories are all. The two newest are kept; one that is
damaged is set aside, and the one before it, or the start, is used. One of another job (settings, code, data) or
format is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bflp.files import canonical_json, whole_file

FORMAT = "1"
KEPT = 2


@dataclass
class Progress:
    """Where a cell stands after `round` rounds.

    model [D]; rounds: the evaluated rounds; timing: lists of seconds; resumed_at: rounds at which it went on;
    diverged: why the round after it failed (never in a checkpoint).
    """

    round: int
    model: Tensor
    rounds: list[dict[str, Any]] = field(default_factory=list)
    timing: dict[str, Any] = field(default_factory=dict)
    resumed_at: list[int] = field(default_factory=list)
    diverged: dict[str, Any] | None = None

    def history(self) -> str:
        return json.dumps(
            {"round": self.round, "rounds": self.rounds, "timing": self.timing, "resumed_at": self.resumed_at}
        )


class Checkpoints:
    """The checkpoints of one cell in `folder`; `identity` is the string of all that its result depends on."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder = folder
        self.identity = hashlib.sha256(identity.encode()).hexdigest()

    def save(self, progress: Progress) -> None:
        """Write a checkpoint, then remove all but the newest two. Raises OSError."""
        history = progress.history()
        metadata = {"format": FORMAT, "identity": self.identity, "history": history}
        metadata["checksum"] = _checksum(progress.model, metadata)
        with whole_file(self.folder / f"round{progress.round:08d}.safetensors") as temporary:
            temporary.write_bytes(save({"model": progress.model}, metadata=metadata))
        for old in self._files()[KEPT:]:
            old.unlink(missing_ok=True)

    def newest(self) -> Progress | None:
        """The newest usable checkpoint, or None; says on stderr what is not used and why."""
        for file in self._files():
            try:
                metadata, model = _read(file)
            except (SafetensorError, OSError, ValueError, KeyError) as error:
                aside = file.with_suffix(".damaged")
                file.replace(aside)
                print(
                    f"warning: the checkpoint {file} is damaged ({error}); set aside as {aside.name}",
                    file=sys.stderr,
                )
                continue
            if metadata["format"] != FORMAT or metadata["identity"] != self.identity:
                what = "format" if metadata["format"] != FORMAT else "settings, code or data"
                print(f"the checkpoint {file} is of another {what}: not used", file=sys.stderr)
                file.unlink()
                continue
            return Progress(model=model, **json.loads(metadata["history"]))
        return None

    def remove(self) -> None:
        """Remove the folder: the cell is done."""
        shutil.rmtree(self.folder, ignore_errors=True)
        # Folders of the grid's coordinates that are empty now.
        with contextlib.suppress(OSError):
            for parent in list(self.folder.parents)[:6]:
                parent.rmdir()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("round*.safetensors"), reverse=True)


def _read(file: Path) -> tuple[dict[str, str], Tensor]:
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata() or {}
        model = opened.get_tensor("model")
    stated = metadata.pop("checksum")
    if stated != _checksum(model, metadata):
        raise ValueError("its checksum is wrong")
    return metadata, model


def _checksum(model: Tensor, metadata: dict[str, str]) -> str:
    content = model.to(torch.float32).numpy().tobytes() + canonical_json(metadata).encode()
    return hashlib.sha256(content).hexdigest()
