"""Training is killed, gets a signal, or its file operations fail: at random moments, and at each file operation."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Iterator
from functools import partial

from file_operations import at_change, count_changes
from laboratory import Laboratory, Tally, after_signal
from small_cell import forked, forked_main, run_main

from bflp.results import merged

# File operations at the end of training: of model, result, evaluation, progress, and links in `kept`.
LAST = 30


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
    """Killed before and in each file operation: in checkpoints, between model and result, while they are kept."""
    tally = Tally("training killed before a file operation, or in the midst of writing")
    for number in _numbers(lab, short):
        for size in (-1, lab.random.randrange(0, 3000)):
            end = lab.cell.train(partial(at_change, lab.folder, number, partial(_die, size)))
            # A quicker run writes its progress less often and may end before this operation; and after the last file is
            # written, nothing is in the midst of it.
            if end.code == 0:
                lab.cell.clear()
                continue
            assert end.code == (-signal.SIGKILL if size < 0 else -signal.SIGXFSZ), end
            where = f"before file operation {number}" if size < 0 else f"{size} bytes into a file from {number} on"
            lab.finish(tally, f"killed {where}")
    return tally


def _die(size: int, path: str) -> None:
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
        end = lab.cell.train(partial(at_change, lab.folder, number, partial(_strike, which.name)))
        after_signal(lab, tally, end, which, f"{which.name} at file operation {number}")
    return tally


def signals(lab: Laboratory, count: int) -> Tally:
    """SIGTERM or Ctrl-C at random moments."""
    tally = Tally("SIGTERM or Ctrl-C at a random moment of training")
    # The only checkpoints are those that are saved because of the signal.
    lab.cell.checkpoint_seconds = 3600.0
    for number in range(count):
        which = (signal.SIGTERM, signal.SIGINT)[number % 2]
        end = lab.cell.train(kill_after=lab.moment(), number=which)
        after_signal(lab, tally, end, which, which.name)
    lab.cell.checkpoint_seconds = 0.0
    return tally


def failing_changes(lab: Laboratory, short: bool) -> Tally:
    """File operations fail from one on: a full disk, no permission, a read-only file system; or one alone, broken."""
    tally = Tally("file operations of training fail (ENOSPC, EACCES, EROFS, EIO)")
    codes = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO)
    for index, number in enumerate(_numbers(lab, short)):
        code = codes[(index + lab.random.randrange(4)) % 4]
        name = errno.errorcode[code]
        end = lab.cell.train(partial(at_change, lab.folder, number, partial(_strike, name), again=code != errno.EIO))
        what = f"{name} from file operation {number}"
        # Failing to write how far it is, or to link where it can copy, is not worth failing for.
        if end.code == 0 and lab.cell.outcome() == lab.expected:
            tally.tried += 1
            lab.cell.clear()
        elif not end.one_clear_error:
            tally.check(False, f"{what}: ended with {end.code}: {end.text}")
            lab.cell.clear()
        else:
            lab.finish(tally, what)
    return tally


def preparation_at_changes(lab: Laboratory, step: int) -> Tally:
    """The programs that make all but the training: killed, ended or failing at each file operation."""
    tally = Tally("prepare, partition, evaluate, merge: killed, SIGTERM, ENOSPC at a file operation")
    cell, paths = lab.cell, lab.cell.plan.paths
    end = cell.train()
    assert end.code == 0, end.text
    programs = {
        "prepare": (cell.prepare_arguments(), [cell.data, cell.data.with_suffix(".json"), paths.made("tiny")]),
        "partition": (cell.partition_arguments(), [cell.partition, cell.partition.with_suffix(".csv")]),
        "evaluate": (cell.settings_arguments(), [cell.evaluation, paths.evaluated(*cell.cell.block)]),
        "merge": (cell.settings_arguments(), [paths.merged, paths.merged_rounds, merged.record(cell.plan)]),
    }
    for script, (arguments, outputs) in programs.items():
        assert forked_main(script, arguments).code == 0
        whole = {path: path.read_bytes() for path in outputs}
        for how in ("SIGKILL", "SIGTERM", "ENOSPC"):
            for number in range(1, 100, step):
                for path in outputs:
                    path.unlink(missing_ok=True)

                def body(s: str = script, a: list[str] = arguments, n: int = number, h: str = how) -> None:
                    at_change(cell.folder, n, partial(_strike, h), again=h == "ENOSPC")
                    run_main(s, a)

                end = forked(body)
                if end.code == 0:
                    break
                right = {"SIGKILL": end.code == -9, "SIGTERM": end.code == 143, "ENOSPC": end.one_clear_error}[how]
                right = right and "Traceback" not in end.text
                right = right and all(not p.exists() or p.read_bytes() == whole[p] for p in outputs)
                right = right and (how != "SIGTERM" or not cell.leftovers())
                end_again = forked_main(script, arguments)
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
    """A signal, or an error of the file system, by name."""
    if how.startswith("E"):
        code: int = getattr(errno, how)
        raise OSError(code, os.strerror(code), path)
    os.kill(os.getpid(), getattr(signal, how))


def _numbers(lab: Laboratory, short: bool) -> Iterator[int]:
    """The numbers of all file operations of an uninterrupted run; short: some, of the LAST more."""
    report = lab.folder / "count"
    end = lab.cell.train(lambda: count_changes(lab.cell.folder, report))
    assert end.code == 0, end.text
    count = int(report.read_text())
    lab.cell.clear()
    some = {
        *range(1 + lab.random.randrange(16), count + 1, 16),
        *range(count - LAST + lab.random.randrange(3), count + 1, 3),
    }
    yield from sorted(some) if short else range(1, count + 1)
