"""How far a running cell is: a bar on a terminal, one line a minute in a log file."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from tqdm import tqdm


class RoundProgress:
    """Shows rounds done, rate, time left and the last accuracy, on stderr."""

    SECONDS_BETWEEN_LINES = 60.0

    def __init__(self, name: str, rounds: int, start: int = 0) -> None:
        self.name, self.rounds, self.done, self.started_at = name, rounds, start, start
        self.accuracy: float | None = None
        self.start_time = self.last_line = time.monotonic()
        self.bar = (
            tqdm(total=rounds, initial=start, desc=name, unit="round", dynamic_ncols=True)
            if sys.stderr.isatty()
            else None
        )

    def __enter__(self) -> RoundProgress:
        if self.bar is None:
            self._line(f"starts, {self.rounds - self.done} of {self.rounds} rounds to do")
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
        if self.bar is not None:
            self.bar.set_postfix_str(self._last_accuracy(), refresh=False)
            self.bar.update(1)
        elif time.monotonic() - self.last_line >= self.SECONDS_BETWEEN_LINES and round_ < self.rounds:
            self.last_line = time.monotonic()
            pace = (self.last_line - self.start_time) / max(1, round_ - self.started_at)
            left = pace * (self.rounds - round_) / 60
            self._line(
                f"round {round_}/{self.rounds}, {pace:.2f} s/round, {left:.1f} min left, {self._last_accuracy()}"
            )

    def _last_accuracy(self) -> str:
        return "not evaluated yet" if self.accuracy is None else f"accuracy {self.accuracy:.2f}%"

    def _line(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.name}: {text}", file=sys.stderr, flush=True)
