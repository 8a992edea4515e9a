"""Cells whose clients train at once, through the program: what never changes a result, and what makes another."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from tiny_federation import stopped_after

from bflp.runtime.errors import HopelessError

pytestmark = pytest.mark.slow

ALL = {"setups": {4: {"fraction": 1.0, "rounds": 3}}}


def job(tiny, model="FVBWA", rule="EAA", most=3, **overrides):
    return tiny.job(model, rule, **{**ALL, "training": {"stack": most}, **overrides})


@pytest.mark.parametrize(("model", "rule"), [("FED", None), ("FVBWA", "EAA")])
def test_results_are_the_same_for_any_number_of_processes(tiny, model, rule):
    """Two stacks of two; and the number of clients at once names the cell, since sums may be rounded otherwise."""
    stacked = job(tiny, model, rule)
    _, *expected = tiny.run(stacked, "one")
    for processes in (2, 3):
        assert tiny.run(stacked, f"{processes}", processes)[1:] == tuple(expected)
    alone, wider = tiny.job(model, rule, **ALL), job(tiny, model, rule, most=4)
    assert len({each.identity("data") for each in (alone, stacked, wider)}) == 3
    tiny.run(alone, "alone")
    models = [load_file(tiny.folder / f"{name}.safetensors") for name in ("one", "alone")]
    for name, tensor in models[0].items():
        torch.testing.assert_close(tensor, models[1][name], rtol=1e-3, atol=1e-4)


def test_the_curves_are_those_of_clients_one_by_one(tiny):
    """With server-side Adam, whose clients' training is FedAvg's."""
    found = [
        tiny.run(tiny.job("ADAM", None, **ALL, training={"stack": most}, models=METHOD), str(most))[0]["rounds"]
        for most in (None, 3)
    ]
    for ours, theirs in zip(*found, strict=True):
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.5)
        assert ours["nll"] == pytest.approx(theirs["nll"], rel=1e-3)


METHOD = {"ADAM": {"base": "FEDAVG", "algorithm": "fedadam"}}


def test_a_stopped_cell_goes_on_to_the_same_result(tiny):
    stacked = job(tiny)
    _, *expected = tiny.run(stacked, "straight")
    with stopped_after(2):
        tiny.run(stacked)
    result, *found = tiny.run(stacked, processes=2)
    assert found == expected
    assert result["environment"]["resumed_at"] == [2]


def test_the_models_of_its_clients_are_kept(tiny):
    kept = {}
    for most in (None, 3):
        clients = tiny.folder / f"{most}.clients.safetensors"
        own = type(tiny)(tiny.folder)
        object.__setattr__(own, "files", lambda name, clients=clients: tiny.files(name, clients=clients))
        own.run(job(tiny, "FEDAVG", None, most), f"kept-{most}")
        kept[most] = load_file(clients)
    assert kept[3]["clients"].tolist() == kept[None]["clients"].tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(kept[3]["vectors"], kept[None]["vectors"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("processes", [1, 2])
def test_divergence_names_a_client_whatever_the_processes(tiny, processes):
    """The first of the first stack: the largest."""
    with pytest.raises(HopelessError, match=r"round 1, client 1: .*learning_rate"):
        tiny.run(job(tiny, "FED", None, training={"stack": 3, "learning_rate": 1e20}), processes=processes)
