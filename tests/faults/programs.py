"""The whole training program with its workers: itself, a worker or their server is killed or gets a signal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable

import psutil
from laboratory import Laboratory, Tally, after_signal
from small_cell import End, SmallCell

# An ended program may leave processes for this long.
SECONDS_TO_VANISH = 10.0


class Program:
    """A started training program, and the processes of its session."""

    def __init__(self, cell: SmallCell, processes: int) -> None:
        self.process, self.start = cell.start(processes), time.monotonic()

    def members(self) -> dict[int, int]:
        """The living processes of the program's session, workers and their server, too: number -> parent's number."""
        found = {}
        for process in psutil.process_iter(["ppid", "status"]):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid and process.info["status"] != psutil.STATUS_ZOMBIE:
                    found[process.pid] = process.info["ppid"]
        return found

    def workers(self) -> list[int]:
        """Its worker processes: the children of its children."""
        members = self.members()
        return [pid for pid, parent in sorted(members.items()) if members.get(parent) == self.process.pid]

    def reached(self, cell: SmallCell, round_: int) -> bool:
        """Wait until the cell has a checkpoint of that round."""
        return self.wait_for(lambda: cell.checkpoint_round() >= round_)

    def has_workers(self, count: int) -> bool:
        """Wait until so many workers are there."""
        return self.wait_for(lambda: len(self.workers()) == count)

    def wait_for(self, condition: Callable[[], bool], seconds: float = 120.0) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if condition():
                return True
            time.sleep(0.02)
        return False

    def end(self) -> tuple[End, float]:
        """How it ended, and how long after now."""
        start = time.monotonic()
        try:
            text, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            text = "it hung"
        seconds = time.monotonic() - start
        code = self.process.poll()
        return End(999 if code is None else code, text, seconds), seconds

    def survivors(self) -> list[str]:
        """Processes that are still there seconds after the end; they are killed then."""
        limit = time.monotonic() + SECONDS_TO_VANISH
        while (left := self.members()) and time.monotonic() < limit:
            time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return [f"process {pid}" for pid in left]


def program_kills(lab: Laboratory, count: int) -> Tally:
    """The whole program with two workers gets SIGKILL, SIGTERM or Ctrl-C: the parent alone, all, or all the others."""
    tally = Tally("program with 2 workers: SIGKILL of the parent, SIGTERM and Ctrl-C to it or to all")
    ways = [
        (signal.SIGKILL, "the parent"),
        (signal.SIGTERM, "all"),
        (signal.SIGTERM, "the others"),
        (signal.SIGINT, "all"),
        (signal.SIGTERM, "the parent"),
        (signal.SIGINT, "the others"),
    ]
    slowest = 0.0
    rounds_in_all = 100
    lab = Laboratory(lab.folder / "programs", lab.random.randrange(2**32), rounds_in_all)
    for number in range(count):
        which, whom = ways[number % len(ways)]
        program = Program(lab.cell, 2)
        rounds = lab.random.randrange(0, rounds_in_all - 10)
        program.reached(lab.cell, rounds)
        time.sleep(lab.random.uniform(0.0, 0.2))
        with contextlib.suppress(ProcessLookupError):
            if whom == "the others":
                for pid in program.members():
                    if pid != program.process.pid:
                        os.kill(pid, which)
            else:
                (os.killpg if whom == "all" else os.kill)(program.process.pid, which)
        end, seconds = program.end()
        slowest = max(slowest, seconds)
        left = program.survivors()
        what = f"{which.name} to {whom} in round {rounds}"
        if whom == "the others":
            # The parent alone decides what to do; without it nothing happens.
            tally.check(
                end.code == 0 and lab.cell.outcome() == lab.expected and not left, f"{what}: {end}, left {left}"
            )
            lab.cell.clear()
        elif left or end.text == "it hung" or seconds > 20:
            tally.check(False, f"{what}: {seconds:.1f} s, left {left}, {end.text}")
            lab.cell.clear()
        elif which == signal.SIGKILL:
            lab.finish(tally, what)
        else:
            after_signal(lab, tally, end, which, what)
    tally.notes.append(f"the slowest end took {slowest:.1f} s")
    return tally


def worker_kills(lab: Laboratory, count: int) -> Tally:
    """One worker of two dies: the job fails at once, says which client and why, and goes on when run again."""
    tally = Tally("one worker killed (SIGKILL, SIGSEGV, SIGBUS, SIGABRT) or its server")
    ways = ["SIGKILL", "SIGSEGV", "server", "SIGBUS", "SIGABRT"]
    # Rounds must last, so that the worker dies while it works.
    slow = SmallCell(lab.cell.folder, rounds=2, local_epochs=2000)
    slowest = 0.0
    for number in range(count):
        way = ways[number % len(ways)]
        program = Program(slow, 2)
        if not program.has_workers(2):
            tally.check(False, f"no workers: {program.end()}")
            continue
        time.sleep(3.0)
        members, workers = program.members(), program.workers()
        victim = members[workers[0]] if way == "server" else lab.random.choice(workers)
        os.kill(victim, signal.SIGKILL if way == "server" else getattr(signal, way))
        end, seconds = program.end()
        slowest = max(slowest, seconds)
        left = program.survivors()
        cause = "exit code" if way == "server" else f"killed by {way}"
        named = re.search(r"error: the worker process \d+ .*working on round 1, client \d", end.text)
        right = end.one_clear_error and bool(named) and cause in end.text and not left and seconds < 20
        tally.check(right, f"{way}: {end}, left {left}")
        slow.clear()
    tally.notes.append(f"the slowest end took {slowest:.1f} s")
    return tally
