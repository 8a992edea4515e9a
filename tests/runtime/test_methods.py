"""Every method: the same bits for any number of processes, and after it was stopped, with all that it remembers."""

from __future__ import annotations

import signal

import pytest

from bflp import algorithms
from bflp.runtime.checkpoint import Checkpoints
from bflp.runtime.termination import Terminated
from bflp.settings.rules import algorithm_module

ROUNDS = {4: {"fraction": 1.0, "rounds": 5}}


def methods():
    """(name, entry of `models:`, rule or None): each algorithm with a posterior it is defined for, and each kind."""
    for name in algorithms.names():
        kinds = getattr(algorithm_module({"name": name}), "KINDS", ("none", "variational"))
        kind = "variational" if "variational" in kinds and name != "fedavg" else kinds[0]
        takes_rules = kind != "none" and not hasattr(algorithm_module({"name": name}), "server")
        yield name, {"posterior": kind, "algorithm": name}, "RKL" if takes_rules else None
    for kind in ("ivon", "laplace", "swag"):
        yield kind, {"posterior": kind}, "W2"
    yield "adam", {"posterior": "variational", "optimiser": "adam"}, "EAA"


# For the inner loop: between them, clients and a server that remember, and posteriors.
QUICK = ("scaffold", "pvi", "ivon")
METHODS = [
    pytest.param(entry, rule, id=name, marks=() if name in QUICK else pytest.mark.slow)
    for name, entry, rule in methods()
]


def job_of(tiny, entry, rule):
    optimiser = {"optimiser": {"learning_rate": 0.01}} if entry["posterior"] == "ivon" else {}
    models = {"models": {"METHOD": {"weights": "data", **entry, **optimiser}}}
    return tiny.job("METHOD", rule, setups=ROUNDS, training={"learning_rate": 0.01}, **models)


@pytest.mark.parametrize(("entry", "rule"), METHODS)
def test_processes_and_a_stop_change_no_bit(tiny, monkeypatch, entry, rule):
    job = job_of(tiny, entry, rule)
    result, *expected = tiny.run(job, "straight")
    assert len(result["rounds"]) == 5
    assert tiny.run(job, "pool", processes=3)[1:] == tuple(expected)
    save = Checkpoints.save

    def save_and_stop(self, reached):
        save(self, reached)
        if reached.round == 3:
            raise Terminated(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save_and_stop)
        with pytest.raises(Terminated):
            tiny.run(job)
    resumed, *found = tiny.run(job, processes=2)
    assert found == expected
    assert resumed["environment"]["resumed_at"] == [3]
