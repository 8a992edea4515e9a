"""Every method: the same bits for any number of processes, and after it was stopped, with all that it remembers."""

from __future__ import annotations

from typing import get_args

import pytest
from tiny_federation import stopped_after

from bflp import aggregators, algorithms
from bflp.runtime.checkpoint import Checkpoints
from bflp.settings.algorithms import algorithm_module
from bflp.settings.methods import OPTIMISERS, Posterior
from tests.oracles import own_network


def methods():
    """(name, entry of `models:`, rule or None): each algorithm with a posterior it is defined for, each kind of
    posterior, each rule and each optimiser, as they are found."""
    for name in algorithms.names():
        kinds = getattr(algorithm_module({"name": name}), "KINDS", ("none", "variational"))
        kind = "variational" if "variational" in kinds and name != "fedavg" else kinds[0]
        takes_rules = kind != "none" and not hasattr(algorithm_module({"name": name}), "server")
        yield name, {"posterior": kind, "algorithm": name}, "RKL" if takes_rules else None
    for kind in get_args(Posterior.model_fields["kind"].annotation):
        yield f"posterior {kind}", {"posterior": kind}, "W2" if kind != "none" else None
    for rule in aggregators.names():
        yield rule, {"posterior": "variational"}, rule
    for name in OPTIMISERS:
        if name != "ivon":  # that of the posterior of this name
            yield f"optimiser {name}", {"posterior": "variational", "optimiser": name}, "EAA"
    own = {"network": {"file": own_network.__file__, "width": 4}}
    yield "own network", {"posterior": "none", **own}, None
    yield "own network, variational", {"posterior": {"kind": "variational", "variational": "all"}, **own}, "AALV"
    yield "own network, swag", {"posterior": "swag", **own}, "W2"


# For the inner loop: between them, clients and a server that remember, and posteriors.
QUICK = ("scaffold", "pvi", "posterior ivon", "own network, variational")
METHODS = [
    pytest.param(entry, rule, id=name, marks=() if name in QUICK else pytest.mark.slow)
    for name, entry, rule in methods()
]


def job_of(tiny, entry, rule, rounds, every=1, fraction=1.0):
    optimiser = {"optimiser": {"learning_rate": 0.01}} if entry["posterior"] == "ivon" else {}
    sections = {"models": {"METHOD": {"weights": "data", **entry, **optimiser}}, "evaluation": {"every": every}}
    sections["setups"] = {4: {"fraction": fraction, "rounds": rounds}}
    # Of a client with three samples the prior is steep where the variance is as small as by default.
    sections["posterior"] = {"log_variance": {"initial": -3.0}}
    return tiny.job("METHOD", rule, training={"learning_rate": 0.01}, **sections)


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "rule"), METHODS)
def test_processes_and_a_stop_change_no_bit(tiny, entry, rule):
    job = job_of(tiny, entry, rule, 5)
    result, *expected = tiny.run(job, "straight")
    assert len(result["rounds"]) == 5
    assert tiny.run(job, "pool", processes=3)[1:] == tuple(expected)
    with stopped_after(3):
        tiny.run(job)
    resumed, *found = tiny.run(job, processes=2)
    assert found == expected
    assert resumed["environment"]["resumed_at"] == [3]


class Killed(BaseException):
    """Nothing is saved after it."""


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "rule"), METHODS)
def test_more_rounds_go_on_from_fewer(tiny, monkeypatch, entry, rule):
    """4 rounds extended to 8, killed where it hurts most, and again: as 8 at once. Not all clients train in each
    round, where they need not, and a run of 8 evaluated every 3 rounds has no use for the evaluation of round 4."""
    full = getattr(algorithm_module({"name": entry.get("algorithm", "fedavg")}), "FULL_PARTICIPATION", False)
    few, many = (job_of(tiny, entry, rule, rounds, every=3, fraction=1.0 if full else 0.75) for rounds in (4, 8))
    result, *expected = tiny.run(many, "straight")
    assert [entry["round"] for entry in result["rounds"]] == [3, 6, 8]
    save = Checkpoints.save

    def save_or_be_killed(self, reached):
        # What clients remember of the round is on the disk already.
        if reached.round == 6:
            raise Killed
        save(self, reached)

    for processes in (1, 2):
        shorter, *_ = tiny.run(few, f"cell{processes}", processes)
        assert [entry["round"] for entry in shorter["rounds"]] == [3, 4]
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "save", save_or_be_killed)
            with pytest.raises(Killed):
                tiny.run(many, f"cell{processes}", processes)
        longer, *found = tiny.run(many, f"cell{processes}", processes)
        assert found == expected, f"{processes} processes"
        assert longer["environment"]["resumed_at"] == [4, 5]
