"""A cell that is stopped, killed or started twice: it goes on to the very same result, and leaves no process behind."""

import dataclasses
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bflp.errors import UserError
from bflp.runtime.checkpoint import Checkpoints
from bflp.runtime.termination import Terminated

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = {"setups": {4: {"fraction": 0.75, "rounds": 6}}}


@pytest.fixture
def stop_after(monkeypatch):
    """Raise what a SIGTERM raises, once, as soon as the checkpoint of a given round is written."""

    def stop(round_):
        save = Checkpoints.save
        done = []

        def save_and_stop(self, progress):
            save(self, progress)
            if progress.round == round_ and not done:
                done.append(round_)
                raise Terminated(signal.SIGTERM)

        monkeypatch.setattr(Checkpoints, "save", save_and_stop)

    return stop


def interrupted(tiny, job, name="cell", processes=1):
    """The checkpoints that a run leaves which is stopped."""
    with pytest.raises(Terminated):
        tiny.run(job, name, processes)
    assert not (tiny.folder / f"{name}.json").exists()
    return sorted(tiny.checkpoints(name).glob("*.safetensors"))


@pytest.mark.parametrize(
    ("model", "aggregator", "processes"), [("FED", None, 1), ("FVBA", "PPA", 2), ("FVBWA", "EAA", 1)], ids=str
)
def test_a_stopped_cell_goes_on_to_the_same_result(tiny, stop_after, model, aggregator, processes):
    job = tiny.job(model, aggregator, **ROUNDS)
    _, *expected = tiny.run(job, "straight")
    stop_after(4)
    files = interrupted(tiny, job, processes=processes)
    assert [file.name for file in files] == ["round00000003.safetensors", "round00000004.safetensors"]
    result, *found = tiny.run(job, processes=3 - processes)
    assert found == expected
    assert result["environment"]["resumed_at"] == [4]
    assert [len(result["timing"][f"{part}_seconds"]) for part in ("train", "aggregation", "evaluation")] == [6, 6, 6]
    assert result["timing"]["total_seconds"] > sum(result["timing"]["train_seconds"])
    assert not tiny.checkpoints().exists()


def test_resumed_twice(tiny, stop_after):
    job = tiny.job(**ROUNDS)
    _, *expected = tiny.run(job, "straight")
    stop_after(2)
    interrupted(tiny, job)
    stop_after(5)
    interrupted(tiny, job)
    result, *found = tiny.run(job)
    assert found == expected
    assert result["environment"]["resumed_at"] == [2, 5]


def test_a_damaged_checkpoint_costs_one_round(tiny, stop_after, capsys):
    job = tiny.job(**ROUNDS)
    _, *expected = tiny.run(job, "straight")
    stop_after(4)
    newest = interrupted(tiny, job)[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    capsys.readouterr()
    result, *found = tiny.run(job)
    assert found == expected
    assert result["environment"]["resumed_at"] == [3]
    assert f"{newest} is damaged" in capsys.readouterr().err


def other_settings(tiny, job):
    return tiny.job(**ROUNDS, training={"learning_rate": 0.02})


def other_code(tiny, job):
    return dataclasses.replace(job, fingerprint="0" * 16)


@pytest.mark.parametrize("other", [other_settings, other_code])
def test_a_checkpoint_of_other_settings_or_code_is_not_used(tiny, stop_after, capsys, other):
    job = tiny.job(**ROUNDS)
    other_job = other(tiny, job)
    _, *expected = tiny.run(other_job, "straight")
    stop_after(4)
    interrupted(tiny, job)
    capsys.readouterr()
    result, *found = tiny.run(other_job)
    assert found == expected
    assert result["environment"]["resumed_at"] == []
    assert "of another settings, code or data: not used" in capsys.readouterr().err


def test_a_second_process_is_told_so(tiny):
    folder = tiny.checkpoints()
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(
            UserError, match=r"^tiny/uneven/4/FVBWA/EAA/seed5 is being trained by another process already"
        ):
            tiny.run(tiny.job())
    tiny.run(tiny.job())  # the lock is free when its holder is gone


# The program itself, as the workflow starts it


def start(tiny, job_text, processes):
    arguments = ["--job", job_text, "--processes", str(processes), "--device", "cpu"]
    arguments += ["--checkpoint", '{"rounds": 1, "seconds": 0}', "--checkpoint-folder", tiny.checkpoints()]
    arguments += ["--data", tiny.data_file, "--partition", tiny.partition_file]
    arguments += ["--result", tiny.folder / "cell.json", "--model", tiny.folder / "cell.safetensors"]
    return subprocess.Popen(
        [sys.executable, ROOT / "workflow" / "scripts" / "train.py", *arguments],
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


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_a_killed_program_goes_on_to_the_same_result(tiny, how):
    rounds = {"setups": {4: {"fraction": 0.75, "rounds": 40}}}  # too many to be done before the signal
    text, job = tiny.job_text(**rounds), tiny.job(**rounds)
    _, *expected = tiny.run(job, "straight")
    process = start(tiny, text, processes=1 if how == signal.SIGTERM else 2)
    try:
        wait_for(lambda: len(list(tiny.checkpoints().glob("round*"))) >= 2 or process.poll() is not None, "checkpoints")
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
    result, *found = tiny.run(job)
    assert found == expected
    assert len(result["environment"]["resumed_at"]) == 1
    assert 2 <= result["environment"]["resumed_at"][0] < 40


def test_workers_end_with_their_parent_and_its_lock_is_free(tiny):
    # Clients whose training never ends.
    process = start(tiny, tiny.job_text(training={"local_epochs": 2**31 - 1}), processes=2)
    children = []
    try:
        parent = psutil.Process(process.pid)

        def in_training():
            assert process.poll() is None
            # The parent's children are the server that forks the workers, and multiprocessing's resource tracker.
            workers = [worker for child in parent.children() for worker in child.children()]
            return len(workers) == 2 and all(worker.cpu_times().user > 0.3 for worker in workers)

        wait_for(in_training, "workers in training")
        children = parent.children(recursive=True)
        with pytest.raises(UserError, match=rf"is being trained by process {process.pid} on .* already"):
            tiny.run(tiny.job())
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(timeout=30) == -signal.SIGKILL
        wait_for(lambda: not any(map(alive, children)), "end of the workers", seconds=15)
    finally:
        for each in [process, *filter(alive, children)]:
            each.kill()
        process.communicate()
    tiny.run(tiny.job())
