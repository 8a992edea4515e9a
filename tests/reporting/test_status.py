"""The status of a grid: each state is told from the files, and the time left from what is known."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import fabricated_run
import pytest

from bflp.errors import UserError
from bflp.grid.plan import Plan
from bflp.reporting import status
from bflp.runtime import progress
from bflp.runtime.lock import LOOKS, is_held, only_one

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def plan(tmp_path):
    plan = Plan(fabricated_run.settings(tmp_path, models=["FED", "FVBA"], aggregators=["EAA", "CF"], seeds=[0, 1]))
    fabricated_run.make(plan, wanted=lambda cell: False)
    return plan


def write_log(plan, cell, text):
    log = plan.results / "logs" / "train" / f"{cell}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text, encoding="utf-8")
    return log


@contextmanager
def running(plan, cell, **state):
    """As a training program: the lock is held, and the progress file is there."""
    folder = plan.checkpoint_folder(cell)
    with only_one(folder, str(cell)):
        if state:
            (folder / progress.FILE_NAME).write_text(json.dumps({"updated": time.time(), **state}))
        yield


def states(plan):
    return {str(cell.cell.path("", "")): cell for cell in status.find(plan).cells}


def state_of(plan, cell):
    return states(plan)[str(cell)]


def test_nothing_has_run(plan):
    found = status.find(plan)
    assert {cell.state for cell in found.cells} == {"waiting"} and found.left is None
    text = status.describe(found)
    assert text.startswith("6 cells: 0 done, 6 waiting\n")
    assert "6 cells to do; how long they take shows once one has done a round." in text


def test_done_and_time_left(plan):
    done, rest = plan.cells[0], plan.cells[1:]
    fabricated_run.make(plan, wanted=lambda cell: cell == done)
    found = status.find(plan)
    assert state_of(plan, done).state == "done"
    # 12 rounds of 1.5 s each.
    assert found.left == pytest.approx(len(rest) * 18)
    assert "5 cells to do, none runs; one after the other they take about 2 min." in status.describe(found)


def test_running(plan):
    first, second = plan.cells[:2]
    first_progress = {"round": 4, "rounds": 12, "seconds_per_round": 2.0, "accuracy": 61.25}
    with running(plan, first, **first_progress), running(plan, second):
        found = status.find(plan)
        assert state_of(plan, second).state == "running"
        text = status.describe(found)
    assert f"{first}  round 4/12, 2.00 s/round, 16 s left, accuracy 61.25%" in text
    assert f"{second}  round 0/12, has just begun" in text
    # 16 s, and 12 rounds of each of the five others, two at a time.
    assert found.left == pytest.approx((16 + 5 * 24) / 2, abs=1)
    assert "6 cells to do: about 68 s left, 2 at a time as now." in text
    assert state_of(plan, first).state == "waiting"


def test_progress_of_an_earlier_program_does_not_count(plan):
    cell = plan.cells[0]
    folder = plan.checkpoint_folder(cell)
    with running(plan, cell, round=9, seconds_per_round=1.0, accuracy=1.0):
        pass
    os.utime(folder / progress.FILE_NAME, (1, 1))
    (folder / progress.FILE_NAME).write_text(
        json.dumps({"round": 9, "seconds_per_round": 1.0, "accuracy": 1.0, "updated": time.time() - 60})
    )
    (folder / "round00000007.safetensors").write_bytes(b"")
    with running(plan, cell):
        found = state_of(plan, cell)
    assert (found.state, found.round, found.seconds_per_round) == ("running", 7, None)


def test_diverged_is_told_with_its_reason(plan):
    cell = plan.cells[0]
    fabricated_run.make(plan, wanted=lambda other: other == cell, diverged=frozenset([cell]))
    assert state_of(plan, cell).state == "diverged"
    assert f"{cell}  in round 5, client 3: loss" in status.describe(status.find(plan))


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("12:00:00 x: starts, 12 of 12 rounds to do\nerror: the training diverged\n", "the training diverged"),
        ("Traceback (most recent call last):\n  File x\nValueError: no\n", "ValueError: no"),
        ("12:00:00 x: starts, 12 of 12 rounds to do\n", "ended without a message"),
        ("x: goes on after round 3\n12:00:00 x: round 4/12, 1.0 s/round\n\n", "ended without a message"),
    ],
)
def test_failed_names_reason_and_log(plan, log, reason):
    file = write_log(plan, plan.cells[0], log)
    found = state_of(plan, plan.cells[0])
    assert found.state == "failed" and reason in found.reason
    assert str(file) in status.describe(status.find(plan))


@pytest.mark.parametrize(
    "log",
    [
        "",
        "12:00:00 x: starts, 12 of 12 rounds to do\nx: ended by SIGTERM after round 3; run it again to go on\n",
        "12:00:00 x: done, 12 rounds, accuracy 80.00%\n",
    ],
)
def test_begun_ended_on_purpose_or_deleted_is_no_failure(plan, log):
    write_log(plan, plan.cells[0], log)
    assert state_of(plan, plan.cells[0]).state == "waiting"


def test_a_cell_that_runs_again_after_a_failure_is_running(plan):
    write_log(plan, plan.cells[0], "error: no\n")
    with running(plan, plan.cells[0]):
        assert state_of(plan, plan.cells[0]).state == "running"


def test_waiting_cell_says_from_where_it_goes_on(plan):
    cell = plan.cells[0]
    folder = plan.checkpoint_folder(cell)
    folder.mkdir(parents=True)
    for round_ in (3, 5):
        (folder / f"round{round_:08d}.safetensors").write_bytes(b"")
    assert state_of(plan, cell).round == 5
    assert f"{cell}  goes on after round 5/12" in status.describe(status.find(plan), ["waiting"])


def test_results_of_other_settings_are_stale(plan):
    fabricated_run.make(plan)
    changed = plan.settings.model_copy(
        update={"training": plan.settings.training.model_copy(update={"learning_rate": 1})}
    )
    text = status.describe(status.find(Plan(changed)))
    assert text.startswith("6 cells: 0 done, 0 waiting, 6 stale\n") and "learning_rate" in text
    assert "and 1 more: --list stale" in text


def test_damaged_result_is_named(plan):
    cell = plan.cells[0]
    plan.result_file(cell).parent.mkdir(parents=True)
    plan.result_file(cell).write_text('{"cell": ')
    found = state_of(plan, cell)
    assert found.state == "failed" and str(plan.result_file(cell)) in found.reason


def test_failure_before_training_is_told(plan):
    plan.partition_file(plan.cells[0]).unlink()
    log = plan.results / "logs/partition/synthetic/noniid/10/seed0.log"
    log.parent.mkdir(parents=True)
    log.write_text("error: no split was found\n")
    assert f"Failed before training:\n  no split was found ({log})" in status.describe(status.find(plan))


def test_looking_at_a_lock_never_refuses_a_program_that_wants_it(tmp_path, monkeypatch):
    with only_one(tmp_path, "x"):
        assert is_held(tmp_path)
    assert is_held(tmp_path) is False and is_held(tmp_path / "none") is False
    # A look that lasts longer than any: it ends while the program tries again.
    with (tmp_path / "lock").open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        waits = []

        def wait(seconds):
            waits.append(seconds)
            if len(waits) == LOOKS:
                fcntl.flock(look, fcntl.LOCK_UN)

        monkeypatch.setattr("bflp.runtime.lock.time.sleep", wait)
        with only_one(tmp_path, "x"):
            assert len(waits) == LOOKS
    with only_one(tmp_path, "x"), pytest.raises(UserError, match="being trained by process"), only_one(tmp_path, "x"):
        pass


def test_progress_file_is_written_at_once_and_then_once_a_second(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    file = tmp_path / progress.FILE_NAME

    def read():
        return {key: value for key, value in json.loads(file.read_text()).items() if key != "updated"}

    with progress.RoundProgress("x", 10, 2, file) as shown:
        assert read() == {"round": 2, "rounds": 10, "seconds_per_round": None, "accuracy": None}
        now[0] += 0.5
        shown.update(3, 50.0)
        assert read()["round"] == 2
        now[0] += 0.5
        shown.update(4, None)
        assert read() == {"round": 4, "rounds": 10, "seconds_per_round": 0.5, "accuracy": 50.0}
        (tmp_path / progress.FILE_NAME).unlink()
        tmp_path.rmdir()
        now[0] += 2
        shown.update(5, 60.0)  # no folder any more: that must not end the training


def test_log_gets_a_line_a_minute(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.RoundProgress("x", 100) as shown:
        for round_ in range(1, 101):
            now[0] += 6
            shown.update(round_, 50 + round_ / 10)
    lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == "x: starts, 100 of 100 rounds to do"
    assert lines[1] == "x: round 10/100, 6.00 s/round, 9.0 min left, accuracy 51.00%"
    assert lines[-1] == "x: done, 100 rounds, accuracy 60.00%" and len(lines) == 11


def test_program_is_fast_and_imports_no_torch(tmp_path):
    seeds = list(range(60))
    plan = Plan(fabricated_run.settings(tmp_path, seeds=seeds, partitions=["iid"]))
    assert len(plan.cells) == 720
    settings = plan.settings.canonical()
    code = (
        "import sys; sys.argv = ['status', '--settings', sys.argv[1]]\n"
        f"sys.path.insert(0, {str(PROJECT)!r})\n"
        "import runpy\n"
        f"runpy.run_path({str(PROJECT / 'workflow/scripts/status.py')!r}, run_name='__main__')\n"
        "assert not {'torch', 'pandas', 'matplotlib'} & set(sys.modules), 'slow imports'\n"
    )
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code, settings], capture_output=True, text=True, check=False)
    after = os.times()
    assert done.returncode == 0 and "720 cells: 0 done, 720 waiting" in done.stdout, done.stderr
    # Processor time, since other programs may use the machine; 1 s is usual.
    assert after.children_user - before.children_user < 4
