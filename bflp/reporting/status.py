"""How far a grid is: the state of each cell, from the files that the workflow writes, and the time that is left.

Imports no torch, and reads each file once: a status of hundreds of cells takes a second.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bflp.grid.plan import Cell, Plan
from bflp.results.frame import data_hashes, stale_reason
from bflp.runtime.lock import is_held
from bflp.runtime.progress import FILE_NAME

State = Literal["done", "running", "waiting", "failed", "diverged", "stale"]
STATES: tuple[State, ...] = ("done", "running", "waiting", "failed", "diverged", "stale")


@dataclass(frozen=True)
class CellStatus:
    """Where a cell stands.

    round: of a running cell, or the checkpoint that a waiting one goes on from; seconds_per_round, accuracy (%), left
    (seconds): of a running cell, None before its first round; reason: why it failed, diverged or is stale.
    """

    cell: Cell
    state: State
    round: int = 0
    rounds: int = 0
    seconds_per_round: float | None = None
    accuracy: float | None = None
    left: float | None = None
    reason: str = ""
    log: Path | None = None


@dataclass(frozen=True)
class Status:
    """All cells' states, other jobs that failed (log and last line), and the seconds left (None: not known yet)."""

    cells: Sequence[CellStatus]
    other_failures: Sequence[tuple[Path, str]]
    left: float | None
    at_once: int

    def of(self, state: State) -> list[CellStatus]:
        return [cell for cell in self.cells if cell.state == state]


@dataclass
class _Times:
    """Seconds per round of cells that are alike, to guess those of cells that have not run."""

    by_kind: dict[tuple[Any, ...], list[float]] = field(default_factory=dict)

    def add(self, cell: Cell, seconds_per_round: float) -> None:
        for kind in _kinds(cell):
            self.by_kind.setdefault(kind, []).append(seconds_per_round)

    def guess(self, cell: Cell) -> float | None:
        found = next((self.by_kind[kind] for kind in _kinds(cell) if kind in self.by_kind), None)
        return sum(found) / len(found) if found else None


def _kinds(cell: Cell) -> list[tuple[Any, ...]]:
    """What a cell's time depends on, the most first."""
    data = (cell.dataset, cell.clients)
    return [(*data, cell.model, cell.aggregator), (*data, cell.variational), data, (cell.clients,), ()]


def find(plan: Plan) -> Status:
    """The status of a grid, now."""
    times, hashes = _Times(), data_hashes(plan)
    cells = [_cell_status(plan, cell, hashes, times) for cell in plan.cells]
    running = [cell for cell in cells if cell.state == "running"]
    for status in running:
        if status.seconds_per_round is not None:
            times.add(status.cell, status.seconds_per_round)
    at_once = max(1, len(running))
    work = 0.0
    known = True
    for status in cells:
        if status.state in ("done", "diverged"):
            continue
        pace = times.guess(status.cell)
        if status.left is None and pace is None:
            known = False
        else:
            work += status.left if status.left is not None else (pace or 0.0) * (status.rounds - status.round)
    return Status(cells, _other_failures(plan), work / at_once if known else None, at_once)


def _cell_status(plan: Plan, cell: Cell, hashes: dict[str, str], times: _Times) -> CellStatus:
    rounds = plan.settings.setups[cell.clients].rounds
    folder = plan.checkpoint_folder(cell)
    log = plan.results / "logs" / "train" / f"{cell}.log"
    if folder.is_dir() and _is_running(folder):
        return _running(cell, folder, rounds)
    try:
        text = plan.result_file(cell).read_text(encoding="utf-8")
    except FileNotFoundError:
        reason = failure(log)
        state: State = "waiting" if reason is None else "failed"
        pace = _progress(folder).get("seconds_per_round")
        if pace is not None:
            times.add(cell, pace)
        return CellStatus(cell, state, _checkpoint(folder), rounds, reason=reason or "", log=log)
    try:
        result = json.loads(text)
        diverged, timing = result["diverged"], result["timing"]
        reason = stale_reason(result, json.loads(plan.job(cell)), hashes)
        done = len(timing["train_seconds"])
        if done:
            times.add(cell, timing["total_seconds"] / done)
    except (ValueError, KeyError, TypeError):
        return CellStatus(cell, "failed", 0, rounds, reason=f"{plan.result_file(cell)} is damaged: delete it", log=log)
    if reason:
        return CellStatus(cell, "stale", 0, rounds, reason=reason, log=log)
    if diverged:
        where = "the global model" if diverged["client"] is None else f"client {diverged['client']}"
        text = f"in round {diverged['round']}, {where}: {diverged['reason']}"
        return CellStatus(cell, "diverged", rounds, rounds, reason=text, log=log)
    return CellStatus(cell, "done", rounds, rounds, accuracy=result["final"]["accuracy"])


def _is_running(folder: Path) -> bool:
    held = is_held(folder)
    if held is None:
        # No locks here: running is what has written not long ago.
        progress = _progress(folder)
        patience = max(120.0, 5 * (progress.get("seconds_per_round") or 0.0))
        return bool(progress) and time.time() - progress["updated"] < patience
    return held


def _running(cell: Cell, folder: Path, rounds: int) -> CellStatus:
    progress = _progress(folder)
    try:
        started = (folder / "lock").stat().st_mtime
    except FileNotFoundError:  # it has ended in this moment
        started = 0.0
    # What an earlier program left there does not count.
    if not progress or progress["updated"] < started - 1:
        return CellStatus(cell, "running", _checkpoint(folder), rounds)
    pace = progress["seconds_per_round"]
    left = None
    if pace is not None:
        since = time.time() - progress["updated"]
        left = max(0.0, pace * (rounds - progress["round"]) - since)
    return CellStatus(cell, "running", progress["round"], rounds, pace, progress["accuracy"], left)


def _progress(folder: Path) -> dict[str, Any]:
    try:
        progress = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    keys = {"round", "seconds_per_round", "accuracy", "updated"}
    return progress if isinstance(progress, dict) and keys <= progress.keys() else {}


def _checkpoint(folder: Path) -> int:
    """The round of the newest checkpoint, 0 where there is none."""
    found = (re.fullmatch(r"round(\d+)\.safetensors", file.name) for file in folder.glob("round*.safetensors"))
    return max((int(match[1]) for match in found if match), default=0)


def failure(log: Path) -> str | None:
    """What the last try of a job without a result died of; None where it has not run, was ended on purpose, or has
    only begun.

    Snakemake empties a log when the job starts again, so its last line is of the last try.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4000))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    # A result that was there once and was deleted to have it made again leaves such a log, too.
    if not last or re.search(r": (done, \d+ rounds|ended by SIG\w+ after round)", last):
        return None
    if re.match(r"\d\d:\d\d:\d\d ", last) or ": goes on after round" in last:
        return "it ended without a message: was it killed, or was there too little memory?"
    return last.removeprefix("error: ")


def _other_failures(plan: Plan) -> list[tuple[Path, str]]:
    """Preparing a data set, or a partition, that failed: the cells that need it wait for ever."""
    logs = plan.results / "logs"
    jobs: dict[Path, Path] = {}
    for dataset in plan.datasets():
        jobs[logs / "prepare" / f"{dataset}.log"] = plan.data_file(dataset)
    for cell in plan.cells:
        name = f"{cell.dataset}/{cell.partition}/{cell.clients}/seed{cell.seed}.log"
        jobs[logs / "partition" / name] = plan.partition_file(cell)
    missing = ((log, failure(log)) for log, output in jobs.items() if not output.exists())
    return [(log, reason) for log, reason in missing if reason is not None]


def describe(status: Status, listed: Iterable[State] = ()) -> str:
    """The status for people; cells of the states `listed` are named in any case."""
    counts = [
        f"{len(status.of(state))} {state}" for state in STATES if state in ("done", "waiting") or status.of(state)
    ]
    lines = [f"{len(status.cells)} cells: {', '.join(counts)}"]
    width = max(len(str(cell.cell)) for cell in status.cells)
    listed = set(listed)
    for state in STATES:
        cells = status.of(state)
        if cells and (state in ("running", "failed", "diverged", "stale") or state in listed):
            shown = cells if state in listed else cells[: MOST_LISTED.get(state)]
            lines += ["", f"{state.capitalize()}{_EXPLAINED.get(state, '')}:"]
            lines += [f"  {cell.cell!s:{width}}  {_describe_cell(cell)}".rstrip() for cell in shown]
            if len(cells) > len(shown):
                lines.append(f"  and {len(cells) - len(shown)} more: --list {state}")
    if status.other_failures:
        lines += ["", "Failed before training:"]
        lines += [f"  {reason} ({log})" for log, reason in status.other_failures]
    to_do = len(status.cells) - len(status.of("done")) - len(status.of("diverged"))
    if to_do:
        lines += ["", _describe_left(status, to_do)]
    return "\n".join(lines)


# Unless asked for; all that run are.
MOST_LISTED = {"failed": 20, "diverged": 20, "stale": 5}
_EXPLAINED = {"stale": " (made with other settings, code or data: snakemake trains them again; see why.py)"}


def _describe_cell(cell: CellStatus) -> str:
    if cell.state == "running":
        if cell.seconds_per_round is None:
            return f"round {cell.round}/{cell.rounds}, has just begun"
        parts = [f"round {cell.round}/{cell.rounds}", f"{cell.seconds_per_round:.2f} s/round"]
        parts.append(f"{duration(cell.left or 0.0)} left")
        parts.append("not evaluated yet" if cell.accuracy is None else f"accuracy {cell.accuracy:.2f}%")
        return ", ".join(parts)
    if cell.state == "done":
        return f"accuracy {cell.accuracy:.2f}%"
    if cell.state == "waiting":
        return f"goes on after round {cell.round}/{cell.rounds}" if cell.round else ""
    return f"{cell.reason} ({cell.log})" if cell.state == "failed" else cell.reason


def _describe_left(status: Status, to_do: int) -> str:
    if status.left is None:
        return f"{to_do} cells to do; how long they take shows once one has done a round."
    if not status.of("running"):
        return f"{to_do} cells to do, none runs; one after the other they take about {duration(status.left)}."
    together = "" if status.at_once == 1 else f", {status.at_once} at a time as now"
    return f"{to_do} cells to do: about {duration(status.left)} left{together}."


def duration(seconds: float) -> str:
    """Seconds in words, as exact as such guesses are."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours / 24:.1f} days"
