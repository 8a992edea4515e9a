"""How far a running cell is: a bar on a terminal, one line a minute in a log file, and a small file for `status`."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from types import TracebackType

from tqdm import tqdm

# In the cell's checkpoint folder.
FILE_NAME = "progress.json"


class RoundProgress:
    """Shows rounds done, rate, time left and the last accuracy, on stderr; writes them to `file`, if given."""

    SECONDS_BETWEEN_LINES = 60.0
    SECONDS_BETWEEN_WRITES = 1.0

    def __init__(self, name: str, rounds: int, start: int = 0, file: Path | None = None) -> None:
        self.name, self.rounds, self.done, self.started_at, self.file = name, rounds, start, start, file
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

    def _seconds_per_round(self) -> float | None:
        """Mean since the program's start; None before the first round is done."""
        done = self.done - self.started_at
        return (time.monotonic() - self.start_time) / done if done else None

    def _last_accuracy(self) -> str:
        return "not evaluated yet" if self.accuracy is None else f"accuracy {self.accuracy:.2f}%"

    def _line(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.name}: {text}", file=sys.stderr, flush=True)

    def _write(self) -> None:
        if self.file is None:
            return
        self.last_write = time.monotonic()
        state = {
            "round": self.done,
            "rounds": self.rounds,
            "seconds_per_round": self._seconds_per_round(),
            "accuracy": self.accuracy,
            "updated": time.time(),
        }
        # Whoever reads it finds it whole. It may well be lost when the machine fails, and no failure to write it may
        # end the training.
        temporary = self.file.with_name(f".{self.file.name}.tmp")
        try:
            temporary.write_text(json.dumps(state), encoding="utf-8")
            temporary.replace(self.file)
        except OSError:
            # On a full disk the empty file is there all the same.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
