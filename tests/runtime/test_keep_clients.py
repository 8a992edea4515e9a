"""Keeping the models of the last round's clients: no other bit of the result, and never silently missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_federation import stopped_after

from bflp import algorithms
from bflp.errors import DataError
from bflp.runtime.clients import load_clients, save_clients
from bflp.settings.algorithms import algorithm_module

ROUNDS = {"setups": {4: {"fraction": 0.75, "rounds": 3}}}


def run(tiny, job, name="cell", processes=1, keep=True):
    """As `TinyFederation.run`, keeping clients; returns what must be the same, and the clients' models."""
    files, file = tiny.files, tiny.folder / f"{name}.clients.safetensors"
    tiny = type(tiny)(tiny.folder)
    object.__setattr__(tiny, "files", lambda name: files(name, clients=file) if keep else files(name))
    result, *same = tiny.run(job, name, processes)
    return result, same, load_file(file) if file.exists() else None


def equal(ours, theirs) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "rule"), [("FED", None), ("FVBWA", "EAA")])
def test_it_changes_nothing_else_and_no_number_of_processes_changes_it(tiny, model, rule):
    job = tiny.job(model, rule, **ROUNDS)
    without = run(tiny, job, "without", keep=False)
    assert without[2] is None and without[0]["environment"]["clients_file"] is None
    _, same, clients = run(tiny, job, "one")
    assert same == without[1]
    assert clients["clients"].tolist() == sorted(set(clients["clients"].tolist())) and len(clients["clients"]) == 3
    assert equal(run(tiny, job, "two", processes=2)[2], clients)


def run_method(tiny, algorithm, name="cell", processes=1):
    """A cell of an algorithm, with its clients."""
    module = algorithm_module({"name": algorithm})
    kind = getattr(module, "KINDS", ("none",))[-1]
    method = {"posterior": kind, "algorithm": algorithm, "optimiser": "ivon" if kind == "ivon" else "sgd"}
    rule = "W2" if kind != "none" and not hasattr(module, "server") else None
    training = {"learning_rate": 0.001, "local_epochs": 2}
    return run(tiny, tiny.job("METHOD", rule, models={"METHOD": method}, training=training, **ROUNDS), name, processes)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted({*algorithms.names()} - {"fedsparse"}))
def test_what_the_clients_of_any_algorithm_train_is_kept(tiny, algorithm):
    result, _, clients = run_method(tiny, algorithm)
    assert result["diverged"] is None and len(clients["clients"]) == 3
    assert torch.isfinite(clients["vectors"]).all()


def remembered(tiny, client):
    """What a client has kept for itself after the last round."""
    (folder,) = tiny.kept().glob("*.clients")
    return load_file(folder / str(client) / "3.safetensors")


def test_of_pfedbayes_they_are_the_clients_own_posteriors(tiny):
    """Not the copies of the global model, which they send; also through a pool."""
    _, _, clients = run_method(tiny, "pfedbayes")
    assert equal(run_method(tiny, "pfedbayes", "two", processes=2)[2], clients)
    for client, vector in zip(clients["clients"].tolist(), clients["vectors"], strict=True):
        own = remembered(tiny, client)
        assert torch.equal(vector[-2 * len(own["means"]) :], torch.cat([own["means"], own["log_variances"]]))


def test_also_where_clients_send_no_parameters(tiny):
    """BayesADMM's clients remember their posterior's natural parameters, and send how these changed."""
    _, _, clients = run_method(tiny, "bayesadmm")
    for client, vector in zip(clients["clients"].tolist(), clients["vectors"], strict=True):
        own, (means, log_variances) = remembered(tiny, client), vector.double().chunk(2)
        torch.testing.assert_close(log_variances, -own["precision"].log())
        torch.testing.assert_close(means, own["shift"] / own["precision"])


@pytest.mark.parametrize("stop", [1, 3])
def test_a_stopped_cell_keeps_the_same(tiny, stop):
    """Also one that was stopped when its last round was done."""
    job = tiny.job(**ROUNDS)
    expected = run(tiny, job, "straight")
    with stopped_after(stop):
        run(tiny, job)
    result, same, clients = run(tiny, job)
    assert result["environment"]["resumed_at"] == [stop]
    assert same == expected[1]
    assert equal(clients, expected[2])


def test_switched_on_later_the_cell_trains_again_and_says_so(tiny, capsys):
    job = tiny.job(**ROUNDS)
    expected = run(tiny, job, "straight")
    before = run(tiny, job, keep=False)
    assert before[2] is None
    capsys.readouterr()
    result, same, clients = run(tiny, job)
    said = capsys.readouterr().err
    assert "trains again, since the models of its last round's clients were not kept" in said
    assert "put back" not in said and result["environment"]["resumed_at"] == []
    assert same == before[1]
    assert equal(clients, expected[2])


def test_a_longer_run_goes_on_and_keeps_those_of_its_own_last_round(tiny):
    run(tiny, tiny.job(**ROUNDS), keep=False)
    longer = {"setups": {4: {"fraction": 0.75, "rounds": 5}}}
    result, _, clients = run(tiny, tiny.job(**longer))
    assert result["environment"]["resumed_at"] == [3]
    assert equal(clients, run(tiny, tiny.job(**longer), "straight")[2])


def test_what_is_finished_is_put_back_with_its_clients(tiny, monkeypatch):
    job = tiny.job(**ROUNDS)
    expected = run(tiny, job)
    for name in ("cell.json", "cell.safetensors", "cell.clients.safetensors"):
        (tiny.folder / name).unlink()
    with monkeypatch.context() as patch:
        patch.setattr("bflp.runtime.cell.run", lambda *arguments: pytest.fail("it trains"))
        again = run(tiny, job)
    assert again[1] == expected[1] and equal(again[2], expected[2])
    # Where what is kept of them is damaged, the cell trains.
    (kept,) = tiny.kept().glob("*.clients.safetensors")
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.unlink()
    kept.write_bytes(content)
    (tiny.folder / "cell.json").unlink()
    again = run(tiny, job)
    assert again[1] == expected[1] and equal(again[2], expected[2])


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "seed0.clients.safetensors"
    with pytest.raises(DataError, match="is not there, though the cell's result is: delete that"):
        load_clients(file, 3)
    save_clients(file, {4: torch.arange(3.0), 1: torch.ones(3)}, 3)
    found = load_clients(file, 3)
    assert list(found) == [1, 4]
    assert found[4].tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="other parameters than the cell's network"):
        load_clients(file, 5)
    with pytest.raises(DataError, match="is not what the cell's training wrote"):
        load_clients(file, 3, "0" * 64)
    content = file.read_bytes()
    for number in range(len(content)):
        file.write_bytes(content[:number] + bytes([content[number] ^ 1]) + content[number + 1 :])
        with pytest.raises(DataError, match=re.escape(str(file))):
            load_clients(file, 3)
    file.write_bytes(content[:40])
    with pytest.raises(DataError, match="is damaged"):
        load_clients(file, 3)
    save_clients(file, {}, 3)
    assert load_clients(file, 3) == {}
