"""How far a cell is, and how it ended: a bar on a terminal, one line a minute in a log file, and a small JSON file.

The file is what `bflp status` and `bflp why` read:
    state: running, done, interrupted, failed or diverged; round, rounds; seconds_per_round, accuracy (%), updated
    (seconds since 1970); device, and why it is that one; identity: of the job; reason: of a failure, and hopeless:
    whether trying again in the same `run` of Snakemake is.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tqdm import tqdm


class RoundProgress:
    """Shows rounds done, rate, time left and the last accuracy, on stderr; writes them to `file`."""

    SECONDS_BETWEEN_LINES = 60.0
    SECONDS_BETWEEN_WRITES = 1.0

    def __init__(self, name: str, rounds: int, start: int, file: Path, **known: str) -> None:
        self.name, self.rounds, self.done, self.started_at, self.file = name, rounds, start, start, file
        self.known = known
        self.accuracy: float | None = None
        self.start_time = self.last_line = time.monotonic()
        self.last_write = -self.SECONDS_BETWEEN_WRITES
        self.bar = (
            tqdm(total=rounds, initial=start, desc=name, unit="round", dynamic_ncols=True)
            if sys.stderr.isatty()
            else None
        )

    def __enter__(self) -> RoundProgress:
        if self.bar is None:
            self._line(f"starts, {self.rounds - self.done} of {self.rounds} rounds to do")
        self._write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()
        elif kind is None:
            self._line(f"done, {self.rounds} rounds, {self._last_accuracy()}")

    def update(self, round_: int, accuracy: float | None) -> None:
        """One more round is done; `accuracy` in % where it was evaluated."""
        self.done = round_
        self.accuracy = accuracy if accuracy is not None else self.accuracy
        now = time.monotonic()
        if now - self.last_write >= self.SECONDS_BETWEEN_WRITES:
            self._write()
        if self.bar is not None:
            self.bar.set_postfix_str(self._last_accuracy(), refresh=False)
            self.bar.update(1)
        elif now - self.last_line >= self.SECONDS_BETWEEN_LINES and round_ < self.rounds:
            self.last_line = now
            pace = self._seconds_per_round() or 0.0
            left = pace * (self.rounds - round_) / 60
            self._line(
                f"round {round_}/{self.rounds}, {pace:.2f} s/round, {left:.1f} min left, {self._last_accuracy()}"
            )

    def end(self, state: str, **more: Any) -> None:
        """Write how the cell ended."""
        self._write(state, **more)

    def _seconds_per_round(self) -> float | None:
        """Mean since the program's start; None before the first round is done."""
        done = self.done - self.started_at
        return (time.monotonic() - self.start_time) / done if done else None

    def _last_accuracy(self) -> str:
        return "not evaluated yet" if self.accuracy is None else f"accuracy {self.accuracy:.2f}%"

    def _line(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.name}: {text}", file=sys.stderr, flush=True)

    def _write(self, state: str = "running", **more: Any) -> None:
        self.last_write = time.monotonic()
        rounds = {"round": self.done, "rounds": self.rounds, "accuracy": self.accuracy}
        write(self.file, state=state, seconds_per_round=self._seconds_per_round(), **rounds, **self.known, **more)


def write(file: Path, **content: Any) -> None:
    """Write a progress file. No failure to write it may end the training, and it may be lost when a machine fails."""
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({**content, "updated": time.time()}), encoding="utf-8")
        temporary.replace(file)
    except OSError:
        # On a full disk the empty file is there all the same.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read(file: Path) -> dict[str, Any]:
    """A progress file's content; empty where there is none that is whole."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and {"state", "updated"} <= content.keys() else {}
