"""How far a grid is: the state of each cell, from the files that the workflow writes, and the time that is left.

Imports no torch, and reads each file once: a status of hundreds of cells takes a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.provenance.state import data_hashes, state
from bflp.runtime import progress
from bflp.runtime.kept import CheckpointRounds
from bflp.runtime.lock import is_held

State = Literal["done", "running", "waiting", "killed", "failed", "diverged", "stale"]
STATES: tuple[State, ...] = ("done", "running", "waiting", "killed", "failed", "diverged", "stale")
# Unless asked for; all that run are.
MOST_LISTED = {"killed": 20, "failed": 20, "diverged": 20, "stale": 5}
_EXPLAINED = {
    "killed": " (ended without a message, perhaps for lack of memory: snakemake goes on from the checkpoint)",
    "stale": " (made with other settings, code or data: snakemake trains them again; see bflp why)",
}


@dataclass(frozen=True)
class CellStatus:
    """Where a cell stands.

    round: of a running cell, or the round that a waiting or killed one goes on from; seconds_per_round, accuracy (%),
    left (seconds): of a running cell, None before its first round; reason: why it failed, diverged or is stale.
    """

    cell: Cell
    state: State
    round: int = 0
    rounds: int = 0
    seconds_per_round: float | None = None
    accuracy: float | None = None
    left: float | None = None
    reason: str = ""
    device: str = ""
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

    posteriors: dict[str, bool]
    by_kind: dict[tuple[Any, ...], list[float]] = field(default_factory=dict)

    def add(self, cell: Cell, seconds_per_round: float) -> None:
        for kind in self._kinds(cell):
            self.by_kind.setdefault(kind, []).append(seconds_per_round)

    def guess(self, cell: Cell) -> float | None:
        found = next((self.by_kind[kind] for kind in self._kinds(cell) if kind in self.by_kind), None)
        return sum(found) / len(found) if found else None

    def _kinds(self, cell: Cell) -> list[tuple[Any, ...]]:
        """What a cell's time depends on, the most first."""
        data = (cell.dataset, cell.clients)
        return [(*data, *cell.row), (*data, self.posteriors[cell.model]), data, (cell.clients,), ()]


def find(plan: Plan) -> Status:
    """The status of a grid, now."""
    times = _Times({model: plan.has_posterior(model) for model, _ in plan.rows})
    hashes = data_hashes(plan)
    checkpoints = CheckpointRounds(plan.paths.kept)
    cells = [_cell_status(plan, cell, hashes, times, checkpoints) for cell in plan.cells]
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


def _cell_status(
    plan: Plan, cell: Cell, hashes: dict[str, str], times: _Times, checkpoints: CheckpointRounds
) -> CellStatus:
    rounds, file, log = plan.settings.setups[cell.clients].rounds, plan.paths.progress(cell), plan.paths.log(cell)
    last = progress.read(file)
    if _is_running(file, last):
        return _running(cell, file, last, rounds)
    found = state(plan, cell, hashes)
    if found.kind == "damaged":
        return CellStatus(cell, "failed", 0, rounds, reason=found.reason, log=log)
    if found.result is None:
        pace = last.get("seconds_per_round")
        if pace is not None:
            times.add(cell, pace)
        identity = plan.cell_identity(cell, hashes)
        round_ = checkpoints.of(identity)
        ended: dict[str, State] = {"failed": "failed", "running": "killed"}
        state_ = ended.get(last.get("state", ""), "waiting")
        return CellStatus(cell, state_, round_, rounds, reason=why_failed(last) or "", log=log)
    timing = found.result.timing
    if timing.train_seconds:
        times.add(cell, timing.total_seconds / len(timing.train_seconds))
    if found.kind == "stale":
        return CellStatus(cell, "stale", 0, rounds, reason=found.reason)
    if diverged := found.result.diverged:
        where = "the global model" if diverged.client is None else f"client {diverged.client}"
        text = f"in round {diverged.round}, {where}: {diverged.reason}"
        return CellStatus(cell, "diverged", rounds, rounds, reason=text)
    return CellStatus(cell, "done", rounds, rounds, accuracy=found.result.rounds[-1].accuracy)


def why_failed(last: dict[str, Any]) -> str | None:
    """Why the last try of a cell without a result failed, from its progress file; None where it did not."""
    if last.get("state") == "failed":
        return str(last["reason"])
    if last.get("state") == "running":
        return "it ended without a message: was it killed, or was there too little memory?"
    return None


def _is_running(file: Path, last: dict[str, Any]) -> bool:
    held = is_held(file.with_suffix(".lock"))
    if held is None:
        # No locks here: running is what has written not long ago.
        patience = max(120.0, 5 * (last.get("seconds_per_round") or 0.0))
        return last.get("state") == "running" and time.time() - last["updated"] < patience
    return held


def _running(cell: Cell, file: Path, last: dict[str, Any], rounds: int) -> CellStatus:
    try:
        started = file.with_suffix(".lock").stat().st_mtime
    except FileNotFoundError:  # it has ended in this moment
        started = 0.0
    # What an earlier program left there does not count.
    if last.get("state") != "running" or last["updated"] < started - 1:
        return CellStatus(cell, "running", 0, rounds)
    pace, left = last["seconds_per_round"], None
    if pace is not None:
        since = time.time() - last["updated"]
        left = max(0.0, pace * (rounds - last["round"]) - since)
    return CellStatus(
        cell, "running", last["round"], rounds, pace, last["accuracy"], left, device=last.get("device", "")
    )


def _other_failures(plan: Plan) -> list[tuple[Path, str]]:
    """Preparing a data set, or a partition, that failed: the cells that need it wait for ever."""
    logs = plan.results / "logs"
    jobs = {logs / "prepare" / f"{dataset}.log": plan.paths.data(dataset) for dataset in plan.datasets()}
    for cell in plan.cells:
        made = plan.partition_file(cell)
        name = made.relative_to(plan.results / "partitions").with_suffix(".log")
        jobs[logs / "partition" / name] = made
    found = []
    for log, output in jobs.items():
        if not output.exists() and log.exists():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            errors = [line.partition("error: ")[2] for line in lines if line.startswith("error: ")]
            if errors:
                found.append((log, errors[-1]))
    return found


def describe(status: Status, listed: Iterable[State] = ()) -> str:
    """The status for people; cells of the states `listed` are named in any case."""
    counts = [f"{len(status.of(kind))} {kind}" for kind in STATES if kind in ("done", "waiting") or status.of(kind)]
    lines = [f"{len(status.cells)} cells: {', '.join(counts)}"]
    width = max(len(str(cell.cell)) for cell in status.cells)
    listed = set(listed)
    for kind in STATES:
        cells = status.of(kind)
        if cells and (kind not in ("done", "waiting") or kind in listed):
            shown = cells if kind in listed else cells[: MOST_LISTED.get(kind)]
            lines += ["", f"{kind.capitalize()}{_EXPLAINED.get(kind, '')}:"]
            lines += [f"  {cell.cell!s:{width}}  {_describe_cell(cell)}".rstrip() for cell in shown]
            if len(cells) > len(shown):
                lines.append(f"  and {len(cells) - len(shown)} more: --list {kind}")
    if status.other_failures:
        lines += ["", "Failed before training:"]
        lines += [f"  {reason} ({log})" for log, reason in status.other_failures]
    to_do = len(status.cells) - len(status.of("done")) - len(status.of("diverged"))
    if to_do:
        lines += ["", _describe_left(status, to_do)]
    return "\n".join(lines)


def _describe_cell(cell: CellStatus) -> str:
    if cell.state == "running":
        where = f" on {cell.device}" if cell.device else ""
        if cell.seconds_per_round is None:
            return f"round {cell.round}/{cell.rounds}{where}, has just begun"
        parts = [f"round {cell.round}/{cell.rounds}{where}", f"{cell.seconds_per_round:.2f} s/round"]
        parts.append(f"{duration(cell.left or 0.0)} left")
        parts.append("not evaluated yet" if cell.accuracy is None else f"accuracy {cell.accuracy:.2f}%")
        return ", ".join(parts)
    if cell.state == "done":
        return f"accuracy {cell.accuracy:.2f}%"
    goes_on = f"goes on after round {cell.round}/{cell.rounds}" if cell.round else ""
    if cell.state == "waiting":
        return goes_on
    if cell.state == "killed":
        return f"{goes_on or 'starts again'} ({cell.log})"
    return f"{cell.reason} ({cell.log})" if cell.log else cell.reason


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
