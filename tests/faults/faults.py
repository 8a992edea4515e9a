"""The faults: each function tries one kind so many times and says how many were lost, and how."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from damage import damaged
from file_operations import at_change, count_changes
from small_cell import ROUNDS, End, SmallCell, forked, run_main

# An ended program may leave processes for this long.
SECONDS_TO_VANISH = 10.0


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


def kills(lab: Laboratory, count: int) -> Tally:
    """SIGKILL at random moments, again and again until the cell is done."""
    tally = Tally("training killed by SIGKILL at a random moment")
    # Of more rounds than other faults need, so that most kills are in a round or a checkpoint and not before.
    lab = Laboratory(lab.folder / "kills", lab.random.randrange(2**32), rounds=30)
    killed = done = resumes = 0
    while killed < count:
        kills_of_this = 0
        while True:
            end = lab.cell.train(kill_after=lab.moment())
            if end.code != -signal.SIGKILL:
                break
            kills_of_this += 1
        killed += kills_of_this
        tally.tried += kills_of_this
        done += 1
        if end.code != 0 or lab.cell.outcome() != lab.expected:
            tally.lost.append(f"after {kills_of_this} kills: exit code {end.code}, {end.text}")
        else:
            resumes += len(lab.cell.environment()["resumed_at"])
        lab.cell.clear()
    tally.notes.append(f"{done} runs to the end, {resumes} times went on from a checkpoint")
    return tally


def kills_at_changes(lab: Laboratory, short: bool) -> Tally:
    """Killed before and in each file operation: in checkpoints, between model and JSON, in cleaning up."""
    tally = Tally("training killed before a file operation, or in the midst of writing")
    for number in _numbers(lab, short):
        for size in (-1, lab.random.randrange(0, 3000)):
            end = lab.cell.train(lambda n=number, s=size: at_change(lab.folder, n, lambda _: _die(s)))
            # After the last file is written, nothing is in the midst of it.
            if size >= 0 and end.code == 0:
                lab.cell.clear()
                continue
            assert end.code == (-signal.SIGKILL if size < 0 else -signal.SIGXFSZ), end
            where = f"before file operation {number}" if size < 0 else f"{size} bytes into a file from {number} on"
            lab.finish(tally, f"killed {where}")
    return tally


def _die(size: int) -> None:
    """Die at once, or (size >= 0) when a file gets longer than that."""
    if size < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def signals_at_changes(lab: Laboratory, short: bool) -> Tally:
    """SIGTERM or Ctrl-C at each file operation."""
    tally = Tally("SIGTERM or Ctrl-C at a file operation of training")
    for number in _numbers(lab, short):
        which = (signal.SIGTERM, signal.SIGINT)[number % 2]
        end = lab.cell.train(lambda n=number, w=which: at_change(lab.folder, n, lambda _: os.kill(os.getpid(), w)))
        _after_signal(lab, tally, end, which, f"{which.name} at file operation {number}")
    return tally


def signals(lab: Laboratory, count: int) -> Tally:
    """SIGTERM or Ctrl-C at random moments."""
    tally = Tally("SIGTERM or Ctrl-C at a random moment of training")
    # The only checkpoints are those that are saved because of the signal.
    pace, lab.cell.pace = lab.cell.pace, '{"rounds": 1, "seconds": 3600}'
    for number in range(count):
        which = (signal.SIGTERM, signal.SIGINT)[number % 2]
        end = lab.cell.train(kill_after=lab.moment(), number=which)
        _after_signal(lab, tally, end, which, which.name)
    lab.cell.pace = pace
    return tally


def _after_signal(lab: Laboratory, tally: Tally, end: End, which: signal.Signals, what: str) -> None:
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


def failing_changes(lab: Laboratory, short: bool) -> Tally:
    """File operations fail from one on: a full disk, no permission, a read-only file system; or one alone, broken."""
    tally = Tally("file operations of training fail (ENOSPC, EACCES, EROFS, EIO)")
    codes = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO)
    for index, number in enumerate(_numbers(lab, short)):
        code = codes[(index + lab.random.randrange(4)) % 4]

        def fail(path: str, code: int = code) -> None:
            raise OSError(code, os.strerror(code), path)

        end = lab.cell.train(lambda n=number, f=fail, c=code: at_change(lab.folder, n, f, again=c != errno.EIO))
        what = f"{errno.errorcode[code]} from file operation {number}"
        # What fails while old checkpoints are removed is not worth failing for.
        if end.code == 0 and lab.cell.outcome() == lab.expected:
            tally.tried += 1
            lab.cell.clear()
            shutil.rmtree(lab.cell.checkpoints, ignore_errors=True)
        elif not end.one_clear_error:
            tally.check(False, f"{what}: ended with {end.code}: {end.text}")
            lab.cell.clear()
        else:
            lab.finish(tally, what)
    return tally


def preparation_at_changes(lab: Laboratory, step: int) -> Tally:
    """The programs that make data, partition and results.csv: killed, ended or failing at each file operation."""
    tally = Tally("prepare, partition, merge: killed, SIGTERM, ENOSPC at a file operation")
    cell = lab.cell
    end = cell.train()
    assert end.code == 0, end.text
    programs = {
        "prepare": (cell.prepare_arguments(), [cell.data, cell.data.with_suffix(".json")]),
        "partition": (cell.partition_arguments(), [cell.partition, cell.partition.with_suffix(".csv")]),
        "merge": (cell.merge_arguments(), [cell.plan.results / "results.csv"]),
    }
    for script, (arguments, outputs) in programs.items():
        assert forked(lambda s=script, a=arguments: run_main(s, a)).code == 0
        whole = {path: path.read_bytes() for path in outputs}
        for how in ("SIGKILL", "SIGTERM", "ENOSPC"):
            for number in range(1, 100, step):
                for path in outputs:
                    path.unlink()

                def body(s: str = script, a: list[str] = arguments, n: int = number, h: str = how) -> None:
                    at_change(cell.folder, n, lambda name: _strike(h, name), again=h == "ENOSPC")
                    run_main(s, a)

                end = forked(body)
                if end.code == 0:
                    break
                right = {"SIGKILL": end.code == -9, "SIGTERM": end.code == 143, "ENOSPC": end.one_clear_error}[how]
                right = right and "Traceback" not in end.text
                right = right and all(not p.exists() or p.read_bytes() == whole[p] for p in outputs)
                right = right and (how != "SIGTERM" or not cell.leftovers())
                end_again = forked(lambda s=script, a=arguments: run_main(s, a))
                right = right and end_again.code == 0 and all(p.read_bytes() == whole[p] for p in outputs)
                tally.check(
                    right, f"{script}, {how} at file operation {number}: {end.code} {end.text} {end_again.text}"
                )
                for path in cell.leftovers():
                    path.unlink()
            for path in outputs:
                path.write_bytes(whole[path])
    cell.clear()
    return tally


def _strike(how: str, path: str) -> None:
    if how == "ENOSPC":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    os.kill(os.getpid(), getattr(signal, how))


def _numbers(lab: Laboratory, short: bool) -> Iterator[int]:
    """The numbers of all file operations of an uninterrupted run; short: some of them.

    Removing the checkpoints takes the last ten; the model and the JSON are written before.
    """
    report = lab.folder / "count"
    end = lab.cell.train(lambda: count_changes(lab.cell.folder, report))
    assert end.code == 0, end.text
    count = int(report.read_text())
    lab.cell.clear()
    some = {*range(1 + lab.random.randrange(16), count + 1, 16), *range(count - 19, count - 9), count}
    yield from sorted(some) if short else range(1, count + 1)


# The whole program, with workers


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
        return End(self.process.poll() if self.process.poll() is not None else 999, text, seconds), seconds

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
        program.wait_for(lambda r=rounds: _newest(lab.cell) >= r)
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
            _after_signal(lab, tally, end, which, what)
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
        if not program.wait_for(lambda p=program: len(p.workers()) == 2):
            tally.check(False, f"no workers: {program.end()}")
            continue
        time.sleep(3.0)
        worker = lab.random.choice(program.workers())
        victim = program.members()[worker] if way == "server" else worker
        os.kill(victim, signal.SIGKILL if way == "server" else getattr(signal, way))
        end, seconds = program.end()
        slowest = max(slowest, seconds)
        left = program.survivors()
        cause = "exit code" if way == "server" else f"killed by {way}"
        named = re.search(r"error: the worker process \d+ .*working on round 1, client \d", end.text)
        right = end.one_clear_error and bool(named) and cause in end.text and not left and seconds < 20
        tally.check(right, f"{way}: {end}, left {left}")
        shutil.rmtree(slow.checkpoints, ignore_errors=True)
    tally.notes.append(f"the slowest end took {slowest:.1f} s")
    return tally


def _newest(cell: SmallCell) -> int:
    return max(
        (int(path.stem.removeprefix("round")) for path in cell.checkpoints.glob("round*.safetensors")), default=0
    )


# Disks


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own, if the system lets us."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _no_mounting(folder: Path) -> str:
    try:
        with small_disk(folder / "try", "64k"):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"file systems can not be mounted here ({error})"


def full_disk(lab: Laboratory, count: int) -> Tally:
    """A disk that is full but for so many kB, while data, partition, checkpoints and results are written to it."""
    tally = Tally("disk full (a real, small tmpfs) while anything is written")
    tally.skipped = _no_mounting(lab.folder)
    if tally.skipped:
        return tally
    with small_disk(lab.folder / "disk", "3m") as disk:
        cell = SmallCell(disk / "cell")
        steps = {"prepare": cell.prepare_arguments(), "partition": cell.partition_arguments()}
        steps["train"] = cell.train_arguments()
        space = {"prepare": 110, "partition": 12, "train": 480}
        for number in range(count):
            step = ("prepare", "partition", "train", "train")[number % 4]
            for path in (cell.folder / "data", cell.folder / "results"):
                shutil.rmtree(path, ignore_errors=True)
            for before in list(steps)[: list(steps).index(step)]:
                assert forked(lambda b=before: run_main(b, steps[b])).code == 0
            free = lab.random.randrange(0, space[step]) * 1024
            filler = disk / "filler"
            _fill(filler, disk, free)
            end = forked(lambda s=step: run_main(s, steps[s]))
            what = f"{step} with {free // 1024} kB left"
            if end.code != 0 and (not end.one_clear_error or "No space left" not in end.text or cell.leftovers()):
                tally.check(False, f"{what}: {end}, left {cell.leftovers()}")
                filler.unlink()
                continue
            filler.unlink()
            if end.code != 0:
                end = forked(lambda s=step: run_main(s, steps[s]))
            for after in list(steps)[list(steps).index(step) + 1 :]:
                end = forked(lambda a=after: run_main(a, steps[a])) if end.code == 0 else end
            # Another folder, other settings: the metrics and the model must be the same all the same.
            right = end.code == 0 and cell.outcome() == lab.expected
            tally.check(right, f"{what}: with space again {end}")
    return tally


def _fill(filler: Path, disk: Path, free: int) -> None:
    with filler.open("wb") as file:
        while (left := _free(disk) - free) > 0:
            file.write(bytes(min(left, 65536)))
            file.flush()


def _free(disk: Path) -> int:
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def no_permission(lab: Laboratory) -> Tally:
    """A read-only file system, and folders of somebody else."""
    tally = Tally("read-only file system, folder without permission")
    tally.skipped = _no_mounting(lab.folder)
    if tally.skipped:
        return tally
    with small_disk(lab.folder / "disk", "3m") as disk:
        cell = SmallCell(disk / "cell")
        steps = {"prepare": cell.prepare_arguments(), "partition": cell.partition_arguments()}
        steps["train"] = cell.train_arguments()
        for step, arguments in steps.items():
            before = sorted(cell.folder.rglob("*"))
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            end = forked(lambda s=step, a=arguments: run_main(s, a))
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            right = end.one_clear_error and "Read-only file system" in end.text
            tally.check(right and sorted(cell.folder.rglob("*")) == before, f"{step}, read-only: {end}")
            end = forked(lambda s=step, a=arguments: _as_nobody(s, a))
            right = end.one_clear_error and "Permission denied" in end.text
            tally.check(right and sorted(cell.folder.rglob("*")) == before, f"{step} as nobody: {end}")
            assert forked(lambda s=step, a=arguments: run_main(s, a)).code == 0
        tally.check(cell.outcome() == lab.expected, "another result in the end")
        # Inputs that can not be read are not damaged.
        cell.clear()
        for path in (cell.data, cell.partition):
            path.chmod(0o600)
            (cell.folder / "results").chmod(0o777)
            end = forked(lambda: _as_nobody("train", steps["train"]))
            tally.check(end.one_clear_error and "Permission denied" in end.text, f"unreadable {path}: {end}")
            path.chmod(0o644)
    return tally


def _as_nobody(script: str, arguments: list[str]) -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    run_main(script, arguments)


# Damage


def damaged_inputs(lab: Laboratory, count: int) -> Tally:
    """Checkpoints, partition, data and its summary, truncated or with a bit flipped: noticed or harmless."""
    tally = Tally("checkpoint, partition, prepared data or summary damaged before training")
    cell = lab.cell
    with tempfile.TemporaryDirectory(dir=lab.folder) as kept:
        end = cell.train(lambda: at_change(lab.folder, 45, lambda _: os.kill(os.getpid(), signal.SIGKILL)))
        assert end.code == -signal.SIGKILL and _newest(cell) > 1, end
        shutil.copytree(cell.checkpoints, Path(kept, "checkpoints"))
        noticed = 0
        for number in range(count):
            shutil.rmtree(cell.checkpoints, ignore_errors=True)
            shutil.copytree(Path(kept, "checkpoints"), cell.checkpoints)
            targets = [
                max(cell.checkpoints.glob("round*")),
                cell.partition,
                cell.data,
                cell.data.with_suffix(".json"),
            ]
            path = targets[number % len(targets)]
            whole = path.read_bytes()
            how, content = damaged(whole, lab.random)
            path.write_bytes(content)
            end = cell.train()
            what = f"{path.name} {how}"
            if end.code == 0:
                tally.check(cell.outcome() == lab.expected, f"{what}: another result, {end.text}")
                noticed += "is damaged" in end.text
            else:
                tally.check(end.one_clear_error and not cell.result.exists(), f"{what}: {end}")
                noticed += 1
            cell.clear()
            if path.parent != cell.checkpoints:
                path.write_bytes(whole)
        shutil.rmtree(cell.checkpoints, ignore_errors=True)
    tally.notes.append(f"{noticed} noticed, the others harmless")
    return tally


def damaged_results(lab: Laboratory, count: int) -> Tally:
    """Result, model, partition, data and results.csv, damaged afterwards: `verify` notices, or nothing is changed."""
    tally = Tally("result, model, partition, data, results.csv damaged before verify and merge")
    cell = lab.cell
    end = cell.train()
    assert end.code == 0, end.text
    assert forked(lambda: run_main("merge", cell.merge_arguments())).code == 0
    report, noticed = lab.folder / "report.json", 0
    while tally.tried < count:
        seed = lab.random.random()

        def body(seed: float = seed) -> None:
            report.write_text(json.dumps(_damage_and_verify(cell, min(count, 490), random.Random(seed))))

        end = forked(body)
        assert end.code == 0, end.text
        found = json.loads(report.read_text())
        tally.tried += found["tried"]
        tally.lost += found["lost"]
        noticed += found["noticed"]
    tally.notes.append(f"{noticed} noticed, the others harmless")
    cell.clear()
    return tally


def _damage_and_verify(cell: SmallCell, count: int, generator: random.Random) -> dict[str, object]:
    from bflp.errors import DataError
    from bflp.results import collect
    from bflp.verification import verify

    merged = cell.plan.results / "results.csv"
    targets = [
        cell.result,
        cell.model,
        cell.partition,
        cell.partition.with_suffix(".csv"),
        cell.data,
        cell.data.with_suffix(".json"),
        merged,
    ]
    assert not verify(cell.plan).wrong, verify(cell.plan)
    truth = collect(cell.plan)[0].to_csv(index=False)
    tried, noticed, lost = 0, 0, []
    for number in range(count):
        path = targets[number % len(targets)]
        whole = path.read_bytes()
        how, content = damaged(whole, generator)
        path.write_bytes(content)
        tried += 1
        try:
            report = verify(cell.plan)
            if report.wrong:
                noticed += 1
            elif _means(path, content) != _means(path, whole):
                lost.append(f"{path.name} {how}: verify did not notice")
            frame, stale = collect(cell.plan)
            if not stale and frame.to_csv(index=False) != truth:
                lost.append(f"{path.name} {how}: merge did not notice")
        except DataError:
            pass
        except Exception as error:
            lost.append(f"{path.name} {how}: {type(error).__name__}: {error}")
        path.write_bytes(whole)
    return {"tried": tried, "noticed": noticed, "lost": lost}


def _means(path: Path, content: bytes) -> object:
    """What a file says, apart from how it is written."""
    import io
    import zipfile

    if path.suffix == ".json":
        return json.loads(content)
    if path.suffix == ".npz":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    if path.suffix == ".safetensors":
        from safetensors.numpy import load

        return {name: tensor.tobytes() for name, tensor in load(content).items()}
    return content
