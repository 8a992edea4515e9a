"""The status of a grid: each state is told from the files, and the time left from what is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import fabricated_run
import pytest
import torch

from bflp.datasets import prepared
from bflp.engine.work import Broadcast
from bflp.grid.job import Job
from bflp.reporting import status
from bflp.runtime import progress
from bflp.runtime.checkpoint import Checkpoints, Progress
from bflp.runtime.lock import only_one

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def plan(tmp_path):
    plan = fabricated_run.plan(tmp_path, models=["FED", "FVBA"], aggregators=["EAA", "CF"], seeds=[0, 1])
    fabricated_run.make(plan, wanted=lambda cell: False)
    return plan


def write_progress(plan, cell, **content):
    progress.write(plan.paths.progress(cell), **content)


def save_checkpoint(plan, cell, round_):
    """As a training program would after a round."""
    data = prepared.read_summary(plan.paths.data(cell.dataset))["sha256"]
    checkpoints = Checkpoints(plan.paths.kept, Job.parse(plan.job(cell)).identity(data))
    checkpoints.save(Progress(round_, Broadcast(torch.zeros(3)), timing={"total_seconds": 1.0}))


@contextmanager
def running(plan, cell, **content):
    """As a training program: the lock is held, and the progress file is there."""
    with only_one(plan.paths.progress(cell).with_suffix(".lock"), str(cell)):
        if content:
            write_progress(plan, cell, state="running", **content)
        yield


def states(plan):
    return {str(cell.cell): cell for cell in status.find(plan).cells}


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
    first_progress = {
        "round": 4,
        "rounds": 12,
        "seconds_per_round": 2.0,
        "accuracy": 61.25,
        "device": "cpu (it is small)",
    }
    with running(plan, first, **first_progress), running(plan, second):
        found = status.find(plan)
        assert state_of(plan, second).state == "running"
        text = status.describe(found)
    assert f"{first}  round 4/12 on cpu (it is small), 2.00 s/round, 16 s left, accuracy 61.25%" in text
    assert f"{second}  round 0/12, has just begun" in text
    # 16 s, and 12 rounds of each of the five others, two at a time.
    assert found.left == pytest.approx((16 + 5 * 24) / 2, abs=1)
    assert "6 cells to do: about 68 s left, 2 at a time as now." in text
    # Gone without a word, as a program that is killed.
    assert state_of(plan, first).state == "killed"
    assert state_of(plan, second).state == "waiting"


def test_progress_of_an_earlier_program_does_not_count(plan):
    cell = plan.cells[0]
    with running(plan, cell, round=9, rounds=12, seconds_per_round=1.0, accuracy=1.0):
        pass
    file = plan.paths.progress(cell)
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, "updated": time.time() - 60}), encoding="utf-8")
    with running(plan, cell):
        found = state_of(plan, cell)
    assert (found.state, found.round, found.seconds_per_round) == ("running", 0, None)


def test_diverged_is_told_with_its_reason(plan):
    cell = plan.cells[0]
    fabricated_run.make(plan, wanted=lambda other: other == cell, diverged=[cell])
    assert state_of(plan, cell).state == "diverged"
    assert f"{cell}  in round 5, client 3: loss" in status.describe(status.find(plan))


def test_failed_names_reason_and_log(plan):
    cell, reason = plan.cells[0], "the training diverged in round 3"
    write_progress(plan, cell, state="failed", reason=reason, hopeless=True)
    assert state_of(plan, cell).state == "failed"
    assert f"{cell}  {reason} ({plan.paths.log(cell)})" in status.describe(status.find(plan))


def test_killed_is_no_failure_and_says_from_where_it_goes_on(plan):
    """Nobody holds the lock: the program is gone, and said nothing."""
    first, second = plan.cells[:2]
    for cell in (first, second):
        write_progress(plan, cell, state="running", round=4, rounds=12, seconds_per_round=1.0)
    save_checkpoint(plan, first, 3)
    assert (state_of(plan, first).state, state_of(plan, first).round) == ("killed", 3)
    text = status.describe(status.find(plan))
    assert "4 waiting, 2 killed" in text and "failed" not in text
    assert f"{first}  goes on after round 3/12 ({plan.paths.log(first)})" in text
    assert f"{second}  starts again ({plan.paths.log(second)})" in text


@pytest.mark.parametrize("state", ["interrupted", "done"])
def test_ended_on_purpose_or_deleted_is_no_failure(plan, state):
    write_progress(plan, plan.cells[0], state=state, round=3, rounds=12)
    assert state_of(plan, plan.cells[0]).state == "waiting"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "failed"}'])
def test_a_damaged_progress_file_says_nothing(plan, text):
    file = plan.paths.progress(plan.cells[0])
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    assert state_of(plan, plan.cells[0]).state == "waiting"


def test_a_cell_that_runs_again_after_a_failure_is_running(plan):
    write_progress(plan, plan.cells[0], state="failed", reason="no")
    with running(plan, plan.cells[0]):
        assert state_of(plan, plan.cells[0]).state == "running"


def test_waiting_cell_says_from_where_it_goes_on(plan):
    cell = plan.cells[0]
    save_checkpoint(plan, cell, 5)
    assert state_of(plan, cell).round == 5
    assert f"{cell}  goes on after round 5/12" in status.describe(status.find(plan), ["waiting"])
    # Of other settings the cell would start at the beginning; with more rounds it would go on.
    other = fabricated_run.changed(plan, training={"learning_rate": 0.5})
    assert state_of(other, cell).round == 0
    longer = fabricated_run.changed(plan, setups={"10": {"rounds": 20}})
    assert state_of(longer, cell).round == 5


def test_results_of_other_settings_are_stale(plan):
    fabricated_run.make(plan)
    other = fabricated_run.changed(plan, training={"learning_rate": 1.0})
    text = status.describe(status.find(other))
    assert text.startswith("6 cells: 0 done, 0 waiting, 6 stale\n") and "learning_rate" in text
    assert "and 1 more: --list stale" in text


def test_damaged_result_is_named(plan):
    cell = plan.cells[0]
    plan.paths.result(cell).parent.mkdir(parents=True)
    plan.paths.result(cell).write_text('{"cell": ')
    found = state_of(plan, cell)
    assert found.state == "failed" and str(plan.paths.result(cell)) in found.reason


def test_failure_before_training_is_told(plan):
    plan.partition_file(plan.cells[0]).unlink()
    log = plan.results / "logs/partition/synthetic/noniid/10/seed0.log"
    log.parent.mkdir(parents=True)
    log.write_text("error: no split was found\n")
    assert f"Failed before training:\n  no split was found ({log})" in status.describe(status.find(plan))


def test_program_is_fast_and_imports_no_torch(tmp_path):
    seeds = list(range(60))
    plan = fabricated_run.plan(tmp_path, seeds=seeds, partitions=["iid"])
    assert len(plan.cells) == 720
    settings = plan.settings.canonical()
    code = (
        "import sys; sys.argv = ['run.py', 'status', '--settings', sys.argv[1]]\n"
        f"sys.path.insert(0, {str(PROJECT)!r})\n"
        "import runpy\n"
        f"runpy.run_path({str(PROJECT / 'workflow/scripts/run.py')!r}, run_name='__main__')\n"
        "assert not {'torch', 'pandas', 'matplotlib'} & set(sys.modules), 'slow imports'\n"
    )
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code, settings], capture_output=True, text=True, check=False)
    after = os.times()
    assert done.returncode == 0 and "720 cells: 0 done, 720 waiting" in done.stdout, done.stderr
    # Processor time, since other programs may use the machine; 1 s is usual.
    assert after.children_user - before.children_user < 4
