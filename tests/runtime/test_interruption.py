"""A cell that is stopped, killed or started twice: it goes on to the very same result, and leaves no process behind."""

import dataclasses
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tiny_federation import stopped_after

from bflp.engine.errors import DivergedError
from bflp.engine.round import Federation
from bflp.errors import UserError
from bflp.grid.paths import Paths
from bflp.runtime import progress
from bflp.runtime.checkpoint import Checkpoints
from bflp.runtime.lock import only_one

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EVALUATION = {"settings": {"ece_bins": 20, "monte_carlo_samples": 2}, "fingerprint": "0" * 16}
ROUNDS = {"setups": {4: {"fraction": 0.75, "rounds": 6}}}


def interrupted(tiny, job, round_, name="cell", processes=1):
    """Run a cell that is stopped after a round; return the checkpoints that are there."""
    with stopped_after(round_):
        tiny.run(job, name, processes)
    assert not (tiny.folder / f"{name}.json").exists()
    return sorted(tiny.kept(name).glob("*.checkpoint.safetensors"))


@pytest.mark.parametrize(
    ("model", "aggregator", "processes"), [("FED", None, 1), ("FVBA", "PPA", 2), ("FVBWA", "EAA", 1)], ids=str
)
def test_a_stopped_cell_goes_on_to_the_same_result(tiny, model, aggregator, processes):
    job = tiny.job(model, aggregator, **ROUNDS)
    _, *expected = tiny.run(job, "straight")
    assert len(interrupted(tiny, job, 4, processes=processes)) == 1
    result, *found = tiny.run(job, processes=3 - processes)
    assert found == expected
    assert result["environment"]["resumed_at"] == [4]
    assert [len(result["timing"][f"{part}_seconds"]) for part in ("train", "aggregation", "evaluation")] == [6, 6, 6]
    assert result["timing"]["total_seconds"] > sum(result["timing"]["train_seconds"])


def test_resumed_twice(tiny):
    job = tiny.job(**ROUNDS)
    _, *expected = tiny.run(job, "straight")
    interrupted(tiny, job, 2)
    interrupted(tiny, job, 5)
    result, *found = tiny.run(job)
    assert found == expected
    assert result["environment"]["resumed_at"] == [2, 5]


def test_a_damaged_checkpoint_means_the_start(tiny, capsys):
    job = tiny.job(**ROUNDS)
    _, *expected = tiny.run(job, "straight")
    (file,) = interrupted(tiny, job, 4)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    capsys.readouterr()
    result, *found = tiny.run(job)
    assert found == expected
    assert result["environment"]["resumed_at"] == []
    assert f"{file} is damaged" in capsys.readouterr().err


def other_settings(tiny, job):
    return tiny.job(**ROUNDS, training={"learning_rate": 0.02})


def other_code(tiny, job):
    return dataclasses.replace(job, fingerprint="0" * 16)


@pytest.mark.parametrize("other", [other_settings, other_code])
def test_each_goes_on_from_its_own_checkpoint(tiny, other):
    """Interrupted, run with other settings or code and interrupted, and back: nothing of either is lost."""
    job = tiny.job(**ROUNDS)
    other_job = other(tiny, job)
    _, *expected = tiny.run(job, "straight")
    _, *other_expected = tiny.run(other_job, "other")
    interrupted(tiny, job, 4)
    assert len(interrupted(tiny, other_job, 2)) == 2
    result, *found = tiny.run(job)
    assert found == expected
    assert result["environment"]["resumed_at"] == [4]
    result, *found = tiny.run(other_job)
    assert found == other_expected
    assert result["environment"]["resumed_at"] == [2]


def test_a_longer_run_that_stopped_at_the_last_round_of_a_shorter_one(tiny):
    """It has not evaluated this round; nothing is trained for it."""

    def job(rounds):
        return tiny.job(setups={4: {"fraction": 0.75, "rounds": rounds}}, evaluation={"every": 4})

    _, *expected = tiny.run(job(3), "straight")
    interrupted(tiny, job(6), 3)
    result, *found = tiny.run(job(3))
    assert found == expected
    assert result["environment"]["resumed_at"] == [3]


def test_curves_keep_the_bins_that_they_began_with(tiny):
    """With a hundred bins some hold one sample or none: another number."""

    def job(rounds):
        return tiny.job(setups={4: {"fraction": 0.75, "rounds": rounds}})

    expected, *_ = tiny.run(job(3), "straight", bins=100)
    assert tiny.run(job(3), "few", bins=5)[0]["rounds"] != expected["rounds"]
    tiny.run(job(2), bins=100)
    result, *_ = tiny.run(job(3), bins=5)
    assert result["rounds"] == expected["rounds"]
    assert result["environment"]["curve_ece_bins"] == 100
    assert len(result["reliability"]["counts"]) == 5


# What clients remember


def scaffold(tiny, rounds):
    models = {"METHOD": {"posterior": "none", "weights": "data", "algorithm": "scaffold"}}
    setups = {4: {"fraction": 0.75, "rounds": rounds}}
    return tiny.job("METHOD", None, models=models, setups=setups, training={"learning_rate": 0.01})


@pytest.mark.parametrize("lost", ["all", "the newest of one"])
def test_without_its_clients_states_no_checkpoint_is_used(tiny, capsys, lost):
    _, *expected = tiny.run(scaffold(tiny, 5), "straight")
    tiny.run(scaffold(tiny, 4))
    (folder,) = tiny.kept().glob("*.clients")
    if lost == "all":
        shutil.rmtree(folder)
    else:
        max(folder.glob("*/*.safetensors"), key=lambda file: int(file.stem)).unlink()
    result, *found = tiny.run(scaffold(tiny, 5))
    assert found == expected
    assert result["environment"]["resumed_at"] == []
    assert "cannot go on after round 4: states of its clients are missing" in capsys.readouterr().err


@pytest.mark.parametrize("processes", [1, 2])
def test_a_damaged_state_of_a_client_is_told(tiny, processes):
    tiny.run(scaffold(tiny, 4))
    for file in tiny.kept().glob("*.clients/*/*.safetensors"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"is damaged \(its checksum is wrong\): delete it"):
        tiny.run(scaffold(tiny, 5), processes=processes)


# Going back to what was finished, and going farther


def test_what_is_finished_is_put_back_without_training(tiny, monkeypatch, capsys):
    job, other_job = tiny.job(**ROUNDS), other_settings(tiny, None)
    first = tiny.run(job)
    assert tiny.run(other_job)[1:] != first[1:]
    # Snakemake deletes outputs before it runs a job again.
    for name in ("cell.json", "cell.safetensors"):
        (tiny.folder / name).unlink()
    monkeypatch.setattr("bflp.runtime.cell.run", lambda *arguments: pytest.fail("it trains"))
    assert tiny.run(job) == first
    assert "put back what was trained before" in capsys.readouterr().err


def test_a_damaged_kept_result_is_not_put_back(tiny):
    job = tiny.job(**ROUNDS)
    first = tiny.run(job)
    for file in tiny.kept().glob("*.json"):
        content = file.read_text()
        file.unlink()
        file.write_text(content.replace("0", "1", 3))
    (tiny.folder / "cell.json").unlink()
    again = tiny.run(job)
    assert again[1:] == first[1:]
    assert again[0]["environment"]["resumed_at"] == [6]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("every", [1, 4])
def test_more_rounds_go_on_from_fewer(tiny, processes, every):
    """The shorter run evaluates its last round, 3, in any case; one of six rounds every 4 would not have."""

    def job(rounds):
        return tiny.job(setups={4: {"fraction": 0.75, "rounds": rounds}}, evaluation={"every": every})

    _, *expected = tiny.run(job(6), "straight")
    tiny.run(job(3))
    result, *found = tiny.run(job(6), processes=processes)
    assert found == expected
    assert result["environment"]["resumed_at"] == [3]
    assert tiny.run(job(3))[0]["environment"]["resumed_at"] == []


def test_a_second_process_is_told_so(tiny):
    lock = tiny.files().progress.with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(
            UserError, match=r"^tiny/uneven/4/FVBWA/EAA/seed5 is being trained by another process already"
        ):
            tiny.run(tiny.job())
    tiny.run(tiny.job())  # the lock is free when its holder is gone


@pytest.mark.parametrize("fail", [{"learning_rate": 1e20}, "rule"])
def test_a_hopeless_failure_is_not_tried_twice(tiny, fail, monkeypatch):
    if fail == "rule":
        file = tiny.folder / "mine.py"
        file.write_text("def aggregate(a, b, c, settings, generator):\n    raise ValueError('no')\n")
        job = tiny.job("FVBA", "MINE", aggregators={"MINE": {"file": str(file)}})
    else:
        job = tiny.job("FED", training=fail)
    with pytest.raises(UserError) as first:
        tiny.run(job, run="this")
    with monkeypatch.context() as patch:
        patch.setattr("bflp.runtime.cell.run", lambda *arguments: pytest.fail("it tries again"))
        with pytest.raises(UserError, match="trying again would end in the same way") as second:
            tiny.run(job, run="this")
        assert str(first.value) in str(second.value)
    # Started by a person again it is tried, with Snakemake or by hand; so is a job of other settings.
    for run in ("next", "", ""):
        with pytest.raises(UserError, match=re.escape(str(first.value)) + "$"):
            tiny.run(job, run=run)
    with pytest.raises(UserError):
        tiny.run(job, run="this")
    tiny.run(tiny.job("FED"), run="this")


def test_a_full_disk_is_told_as_long_as_the_progress_file_has_room(tiny, monkeypatch):
    def full(self, reached):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.file))

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.raises(OSError, match="No space left on device") as failed:
        tiny.run(tiny.job(**ROUNDS))
    last = progress.read(tiny.files().progress)
    assert (last["state"], last["reason"]) == ("failed", str(failed.value))
    assert ".checkpoint.safetensors" in last["reason"] and not last["hopeless"]


# The program itself, as the workflow starts it


def start(tiny, job_text, processes):
    arguments = ["--job", job_text, "--processes", str(processes), "--device", "cpu"]
    arguments += ["--checkpoint-seconds", "0", "--evaluation", json.dumps({**EVALUATION, "ood_file": None})]
    arguments += ["--data", tiny.data_file, "--partition", tiny.partition_file, "--results", tiny.folder / "program"]
    return subprocess.Popen(
        [sys.executable, ROOT / "workflow" / "scripts" / "run.py", "train", *arguments],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"no {what} after {seconds} s"
        time.sleep(0.02)


def alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_a_killed_program_goes_on_to_the_same_result(tiny, how):
    # Rounds that are too many to be done before the signal; clients and a server that remember, where nothing is saved.
    method = {"models": {"METHOD": {"algorithm": "scaffold"}}, "setups": {4: {"fraction": 0.75, "rounds": 40}}}
    named = ("METHOD", None) if how == signal.SIGKILL else ("FVBWA", "EAA")
    text, job = tiny.job_text(*named, **method), tiny.job(*named, **method)
    _, *expected = tiny.run(job, "straight")
    process = start(tiny, text, processes=1 if how == signal.SIGTERM else 2)
    try:
        paths = Paths(tiny.folder / "program", Path())
        progress_file = paths.progress(job.cell)

        def rounds_done():
            return process.poll() is not None or progress.read(progress_file).get("round", 0) >= 2

        wait_for(rounds_done, "rounds")
        process.send_signal(how)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    if how == signal.SIGTERM:
        assert process.returncode == 128 + signal.SIGTERM
        assert "ended by SIGTERM after round" in errors
        assert "Traceback" not in errors
    else:
        assert process.returncode == -signal.SIGKILL
    paths.kept.rename(tiny.kept())
    result, *found = tiny.run(job)
    assert found == expected
    assert len(result["environment"]["resumed_at"]) == 1
    assert 1 <= result["environment"]["resumed_at"][0] < 40


@pytest.mark.slow
def test_workers_end_with_their_parent_and_its_lock_is_free(tiny):
    # Clients whose training never ends.
    process = start(tiny, tiny.job_text(training={"local_epochs": 2**31 - 1}), processes=2)
    children = []
    try:
        parent = psutil.Process(process.pid)

        def in_training():
            assert process.poll() is None
            # The parent's children are the server that forks the workers, and multiprocessing's resource tracker.
            # Programs that it asks about the machine are children, too, and may end meanwhile.
            try:
                workers = [worker for child in parent.children() for worker in child.children()]
            except psutil.NoSuchProcess:
                return False
            return len(workers) == 2 and all(worker.cpu_times().user > 0.3 for worker in workers)

        wait_for(in_training, "workers in training")
        children = parent.children(recursive=True)
        lock = Paths(tiny.folder / "program", Path()).progress(tiny.job().cell).with_suffix(".lock")
        with pytest.raises(UserError, match=rf"by process {process.pid} on .* already"), only_one(lock, "the cell"):
            pass
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(timeout=30) == -signal.SIGKILL
        wait_for(lambda: not any(map(alive, children)), "end of the workers", seconds=15)
    finally:
        for each in [process, *filter(alive, children)]:
            each.kill()
        process.communicate()
    tiny.run(tiny.job())


def test_curves_that_diverge_where_a_longer_run_was_stopped_are_recorded(tiny, monkeypatch):
    """The round itself was done: its times are there, and do not belong to the result."""

    def job(rounds):
        return tiny.job(setups={4: {"fraction": 0.75, "rounds": rounds}}, evaluation={"every": 4})

    with stopped_after(3):
        tiny.run(job(6))

    def diverge(self, model, round_, executor):
        raise DivergedError(round_, None, "evaluation: nll not finite")

    monkeypatch.setattr(Federation, "curves", diverge)
    result, _, _ = tiny.run(job(3), on_divergence="record")
    assert (result["diverged"]["round"], result["rounds"]) == (3, [])
    assert [len(result["timing"]["train_seconds"]), len(result["traffic"]["up_bytes"])] == [2, 2]
