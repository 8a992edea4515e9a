"""A small cell to try faults on, and the count of what was tried and lost."""

from __future__ import annotations

import random
import re
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path

from small_cell import ROUNDS, End, SmallCell


@dataclass
class Tally:
    """Of one kind of fault. skipped: why nothing was tried."""

    name: str
    tried: int = 0
    lost: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: str = ""

    def check(self, right: bool, otherwise: str) -> bool:
        """Count one more that was tried."""
        self.tried += 1
        if not right:
            self.lost.append(otherwise)
        return right


class Laboratory:
    """A small cell with its uninterrupted outcome, and a random generator."""

    def __init__(self, folder: Path, seed: int, rounds: int = ROUNDS) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.cell = SmallCell(folder / "cell", rounds)
        self.cell.make_inputs()
        end = self.cell.train()
        assert end.code == 0, end.text
        self.seconds, self.expected = end.seconds, self.cell.outcome()
        self.cell.clear()

    def moment(self) -> float:
        """A random moment of an uninterrupted run, more often of its rounds than of its start."""
        return self.random.triangular(0.0, self.seconds, 0.8 * self.seconds)

    def finish(self, tally: Tally, what: str, resumed: int | None = None) -> None:
        """Run the cell to its end: its outcome must be that of the uninterrupted run.

        resumed: the round that it must go on from.
        """
        problem = self._half_written()
        end = self.cell.train()
        if problem:
            pass
        elif end.code != 0:
            problem = f"ended with {end.code}: {end.text}"
        elif self.cell.outcome() != self.expected:
            problem = "gave another result"
        elif resumed is not None and self.cell.environment()["resumed_at"][-1:] != [resumed]:
            problem = f"went on from {self.cell.environment()['resumed_at']}, not from round {resumed}"
        elif self.cell.checkpoints.exists() or self.cell.leftovers():
            problem = f"left {[*self.cell.folder.rglob('round*'), *self.cell.leftovers()]}"
        tally.check(not problem, f"{what}: run again, it {problem}")
        self.cell.clear()
        shutil.rmtree(self.cell.checkpoints, ignore_errors=True)

    def _half_written(self) -> str:
        """What is wrong with a result and a model that are there although the cell was not finished."""
        try:
            if self.cell.result.exists() and self.cell.outcome() != self.expected:
                return "had left another result"
            if self.cell.model.exists() and self.cell.model.read_bytes() != self.expected[1]:
                return "had left another model"
        except (ValueError, OSError) as error:
            return f"had left half a result ({error})"
        return ""


def after_signal(lab: Laboratory, tally: Tally, end: End, which: signal.Signals, what: str) -> None:
    """What must be so after SIGTERM or Ctrl-C: a quiet end, and the cell goes on from the round that was told."""
    said = re.search(r"ended by (\w+) after round (\d+)", end.text)
    if end.code == 0:
        # It came so late that finishing was quicker.
        tally.check(lab.cell.outcome() == lab.expected, f"{what}: another result")
        lab.cell.clear()
    elif end.code not in (128 + which, -which) or "Traceback" in end.text or lab.cell.result.exists():
        tally.check(False, f"{what}: ended with {end.code}: {end.text}")
        lab.cell.clear()
    else:
        lab.finish(tally, what, int(said[2]) if said and int(said[2]) else None)


def newest(cell: SmallCell) -> int:
    """The round of the newest checkpoint; 0: none."""
    return max(
        (int(path.stem.removeprefix("round")) for path in cell.checkpoints.glob("round*.safetensors")), default=0
    )
