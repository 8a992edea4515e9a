"""Who executes the clients never changes a result; a worker that fails is reported, and none is left behind."""

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from safetensors.torch import load_file

from bflp.engine.errors import DivergedError
from bflp.engine.work import Train
from bflp.errors import UserError
from bflp.partition import files
from bflp.runtime import pool
from bflp.runtime.cell import in_words
from bflp.runtime.errors import HopelessError

ENDLESS = {"local_epochs": 2**31 - 1}


@pytest.fixture(autouse=True)
def no_worker_is_left():
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "aggregator"), [("FED", None), ("FEDAVG", None), ("FVBA", "PPA"), ("FVBWA", "CF")], ids=str
)
def test_results_are_the_same_for_any_number_of_processes(tiny, model, aggregator):
    job = tiny.job(model, aggregator)
    serial, expected, expected_model = tiny.run(job, "serial", processes=1)
    assert [entry["round"] for entry in serial["rounds"]] == [1, 2, 3]
    assert serial["environment"]["processes"] == 1
    for processes in (2, 3, 10):
        result, same, model_bytes = tiny.run(job, f"pool{processes}", processes)
        assert same == expected
        assert model_bytes == expected_model
        assert result["environment"]["processes"] == processes


def test_a_trained_model_is_better_than_chance(tiny):
    """What the other tests compare is training that works."""
    job = tiny.job("FEDAVG", setups={4: {"fraction": 1.0, "rounds": 8}}, training={"learning_rate": 0.05})
    result, *_ = tiny.run(job, processes=2)
    assert result["final"]["accuracy"] > 80
    assert result["rounds"][-1]["accuracy"] == result["final"]["accuracy"]
    tensors = load_file(tiny.folder / "cell.safetensors")
    assert tensors["conv1.weight"].shape == (6, 1, 5, 5)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "rule"), [("FEDAVG", None), ("FVBWA", "EAA")])
@pytest.mark.parametrize("network", ["mlp", "cnn", "resnet20"])
def test_every_network_learns(tiny, network, model, rule):
    """Three labels: chance is 33%."""
    rounds = {4: {"fraction": 1.0, "rounds": 10}}
    training = {"learning_rate": 0.05, "local_epochs": 4}
    result, *_ = tiny.run(tiny.job(model, rule, network=network, setups=rounds, training=training), processes=2)
    assert result["final"]["accuracy"] > 60


def test_augmented_results_are_the_same_too(tiny):
    augment = {"tiny": {"source": str(tiny.data_file), "augment": {"crop_padding": 2, "flip_probability": 0.5}}}
    job = tiny.job("FED", datasets=augment)
    assert job.settings["augment"]["crop_padding"] == 2
    assert tiny.run(job, "serial", 1)[1:] == tiny.run(job, "pool", 2)[1:]
    assert tiny.run(tiny.job("FED"), "plain", 1)[2] != tiny.read("serial")[2]


def test_another_seed_is_another_result(tiny):
    """With the same data and split: initial model, client draws, shuffling and noise follow the seed."""
    _, _, model = tiny.run(tiny.job(), "one")
    partition = files.load(tiny.partition_file)
    files.save(
        dataclasses.replace(partition, job={**partition.job, "seed": 6}),
        np.zeros(120, dtype=int),
        tiny.folder / "seed6.npz",
    )
    job = dataclasses.replace(tiny.job(), cell=dataclasses.replace(tiny.job().cell, seed=6))
    assert tiny.run(job, "other", partition=tiny.folder / "seed6.npz")[2] != model


@pytest.mark.parametrize("processes", [1, 2])
def test_every_sets_the_evaluated_rounds_and_changes_nothing_else(tiny, processes):
    every_round, *_ = tiny.run(tiny.job(), "all", processes)
    result, *_ = tiny.run(tiny.job(evaluation={"every": 2}), "some", processes)
    assert result["rounds"] == every_round["rounds"][1:]
    assert tiny.read("all")[2] == tiny.read("some")[2]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_client_that_raises(tiny, processes):
    job = tiny.job()
    training = {**job.settings["training"], "batch_size": 0}
    broken = dataclasses.replace(job, settings={**job.settings, "training": training})
    start = time.monotonic()
    with pytest.raises(
        pool.WorkerFailedError, match=r"(?s)raised in round 1, client \d:\n.*must not be zero"
    ) as raised:
        tiny.run(broken, processes=processes)
    assert isinstance(raised.value, UserError)
    assert time.monotonic() - start < 20


def test_a_worker_that_is_killed(tiny, monkeypatch):
    """The worker with the largest client, which never ends, is killed: the other one's work is not waited for."""
    run = pool.PoolExecutor.run

    def run_and_kill(self, vector, tasks):
        threading.Timer(1.0, os.kill, (self.processes[0].pid, signal.SIGKILL)).start()
        return run(self, vector, tasks)

    monkeypatch.setattr(pool.PoolExecutor, "run", run_and_kill)
    job = tiny.job(training=ENDLESS, setups={4: {"fraction": 1.0, "rounds": 3}})
    start = time.monotonic()
    with pytest.raises(pool.WorkerFailedError, match=r"killed by SIGKILL.*lack of memory.*round 1, client 1$"):
        tiny.run(job, processes=2)
    assert time.monotonic() - start < 20
    assert not (tiny.folder / "cell.json").exists()


def test_a_worker_that_dies_between_two_rounds(tiny, monkeypatch):
    run = pool.PoolExecutor.run

    def kill_and_run(self, vector, tasks):
        if isinstance(tasks[0], Train) and tasks[0].round == 2:
            self.processes[1].kill()
            self.processes[1].join()
        return run(self, vector, tasks)

    monkeypatch.setattr(pool.PoolExecutor, "run", kill_and_run)
    with pytest.raises(pool.WorkerFailedError, match=r"killed by SIGKILL.*between two tasks"):
        tiny.run(tiny.job(), processes=2)


def test_workers_that_cannot_start(tiny):
    """Their reason is that the data are gone; the parent says which process and that it was starting."""
    assignment = tiny.assignment(tiny.job())
    work = assignment.work()
    gone = dataclasses.replace(assignment, data_file=tiny.folder / "gone.npz")
    with pytest.raises(pool.WorkerFailedError, match=r"exit code 1.*its start"), pool.executor(gone, work, 2):
        pass


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_divergence_stops_the_cell_and_names_client_and_round(tiny, processes):
    job = tiny.job("FED", training={"learning_rate": 1e20})
    with pytest.raises(HopelessError, match=r"round 1, client \d: .*learning_rate"):
        tiny.run(job, processes=processes)
    assert not (tiny.folder / "cell.json").exists()


def test_recorded_divergence_is_the_same_for_any_number_of_processes(tiny):
    """All clients diverge; which of them is named must not depend on who was quickest."""
    job = tiny.job("FED", training={"learning_rate": 1e20})
    result, expected, model = tiny.run(job, "serial", 1, on_divergence="record")
    assert result["diverged"]["round"] == 1
    assert result["final"] is None
    for processes in (2, 3):
        assert tiny.run(job, f"pool{processes}", processes, on_divergence="record")[1:] == (expected, model)


def test_the_result_file_is_valid_json_of_one_line_per_round(tiny):
    result, *_ = tiny.run(tiny.job())
    lines = (tiny.folder / "cell.json").read_text().splitlines()
    assert sum('"accuracy":' in line and '"round":' in line for line in lines) == 3
    assert json.loads("\n".join(lines)).items() <= result.items()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2])
def test_a_long_folder_for_temporary_files(tiny, processes, monkeypatch):
    """Clusters have such: with it a socket's path would be longer than the system allows."""
    folder = tiny.folder / ("long" * 30)
    folder.mkdir()
    code = (
        "import sys, tempfile; from pathlib import Path; import tiny_federation as t\n"
        "if __name__ == '__main__':\n"
        "    assert len(tempfile.gettempdir()) > 120\n"
        f"    tiny = t.TinyFederation(Path({str(tiny.folder)!r})); tiny.run(tiny.job(), 'long', {processes})\n"
    )
    (tiny.folder / "program.py").write_text(code)
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, tiny.folder / "program.py"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert tiny.read("long")[1:] == tiny.run(tiny.job(), "short")[1:]


def test_what_to_look_at_where_training_diverged() -> None:
    error = DivergedError(3, None, "the algorithm's server step made entries that are not finite")
    assert in_words(error, {"posterior": {}, "algorithm": {"name": "pvi"}}).endswith(
        "Look at training.learning_rate, training.momentum, posterior.log_variance, or set on_divergence: record"
    )
    assert "training.momentum, mine.py, or set" in in_words(error, {"algorithm": {"file": "mine.py"}})
