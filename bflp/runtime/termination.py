"""SIGTERM and Ctrl-C: a program saves what it must, removes what is half written, and ends as the signal would.

The first of these signals raises `Terminated` wherever the main thread is; those that follow are ignored, so that
cleaning up is not interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

from bflp.errors import run_program

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Terminated(BaseException):
    """The first SIGTERM or Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


_received: int | None = None


def run_script(main: Callable[[], None]) -> None:
    """Run a command-line program's `main`; end in order on the signals, and with one line on a UserError."""
    for number in SIGNALS:
        signal.signal(number, _terminate)
    try:
        run_program(main)
    except Terminated as error:
        sys.exit(128 + error.number)
    # What is done must not count as failed because of a signal while Python shuts down.
    ignore()


def check() -> None:
    """Raise Terminated if a signal has come before: Python drops what is raised inside a finaliser."""
    if _received is not None:
        raise Terminated(_received)


def ignore() -> None:
    """Ignore signals from here on: finishing is quicker than breaking off."""
    for number in SIGNALS:
        if signal.getsignal(number) is _terminate:
            signal.signal(number, signal.SIG_IGN)


def _terminate(number: int, frame: FrameType | None) -> None:
    global _received
    if _received is None:
        _received = number
        raise Terminated(number)
