"""A small cell to try faults on, and the count of what was tried and lost."""

from __future__ import annotations

import json
import random
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

from small_cell import ROUNDS, End, SmallCell, forked_main, same


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
        """Run the cell to its end: its outcome must be that of the uninterrupted run, and all of it must be kept.

        resumed: the round that it must go on from.
        """
        problem = self._half_written()
        end = self.train_as_the_workflow()
        problem = problem or self._otherwise(end)
        if not problem and resumed is not None and self.cell.environment()["resumed_at"][-1:] != [resumed]:
            problem = f"went on from {self.cell.environment()['resumed_at']}, not from round {resumed}"
        if not problem and self.cell.leftovers():
            problem = f"left {self.cell.leftovers()}"
        if not problem:
            problem = self._not_kept()
        tally.check(not problem, f"{what}: run again, it {problem}")
        self.cell.clear()

    def train_as_the_workflow(self) -> End:
        """Train the cell; an evaluation that is missing then is made by a job of its own."""
        end = self.cell.train()
        if end.code == 0 and not self.cell.evaluation.exists():
            later = forked_main("evaluate", self.cell.settings_arguments())
            end = End(later.code, end.text + later.text, end.seconds + later.seconds)
        return end

    def _otherwise(self, end: End) -> str:
        if end.code != 0:
            return f"ended with {end.code}: {end.text}"
        return "" if self.cell.outcome() == self.expected else "gave another result"

    def _not_kept(self) -> str:
        """What is wrong with what is kept of a finished cell: Snakemake deletes outputs before it runs a job again."""
        for path in self.cell.made:
            path.unlink()
        end = self.train_as_the_workflow()
        if "put back what was trained before" not in end.text:
            return f"was not put back: {end.text}"
        return self._otherwise(end)

    def _half_written(self) -> str:
        """What is wrong with files that are there although the cell was not finished."""
        try:
            for path, expected in zip(self.cell.made, self.expected, strict=True):
                if path.exists() and same(path) != expected:
                    return f"had left another {path}"
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
    elif said and (state := json.loads(lab.cell.progress.read_text())["state"]) != "interrupted":
        tally.check(False, f"{what}: its progress says {state}")
        lab.cell.clear()
    else:
        lab.finish(tally, what, int(said[2]) if said and int(said[2]) else None)
