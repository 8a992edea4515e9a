"""What is measured on demand, through the real commands: asked for before or after training, it never trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fabricated_run
import numpy as np
import pytest
from safetensors.numpy import load_file

from bflp import load_classes
from bflp.cli import main
from bflp.engine.evaluation import class_accuracy
from bflp.engine.evaluators import temperature
from bflp.engine.metrics import nll
from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import Predictions
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan

CLIENTS = 4
ASKED: dict[str, Any] = {
    "temperature": True,
    "ensemble": {"beta": "fitted"},
    "personal": {"local_share": 0.5, "rule": "RKL"},
}
NAMES = [name for name in METRICS if METRICS[name].function is None and not name.startswith("clients_")]


def bflp(plan: Plan, verb: str, *arguments: str) -> None:
    config = plan.results.parent / "run.yaml"
    main([verb, "--configfile", str(fabricated_run.config_file(plan, config)), *arguments])


def final(plan: Plan, cell: Cell) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan.paths.evaluation(cell).read_text(encoding="utf-8"))["final"]
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A deterministic and a variational method, 3 of 4 clients per round, asked for all that there is on demand."""
    top = {
        "partitions": {"iid": {"held_out": 0.2}},
        "setups": {str(CLIENTS): {"fraction": 0.75, "rounds": 2}},
        "training": {"local_epochs": 2, "batch_size": 20},
        "evaluation": {"monte_carlo_samples": 3, "final": ASKED, "keep_predictions": True},
        "tables": {"metrics": ["accuracy", "nll", *NAMES]},
        "keep_clients": True,
    }
    grid: dict[str, Any] = {
        "partitions": ["iid"],
        "clients": [CLIENTS],
        "models": ["FEDAVG", "FVBWA"],
        "aggregators": ["EAA"],
    }
    plan = fabricated_run.plan(tmp_path_factory.mktemp("run"), samples=200, top=top, seeds=[0], **grid)
    for cell in plan.cells:
        bflp(plan, "train", "--cell", str(cell))
    return plan


def test_a_job_that_trains_measures_what_is_asked_for(trained: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    for cell in trained.cells:
        found = final(trained, cell)
        assert set(NAMES) <= set(found)
        assert all(np.isfinite(found[name]) for name in NAMES)
    bflp(trained, "evaluate")
    assert capsys.readouterr().err == ""  # nothing is left to do
    bflp(trained, "merge")
    bflp(trained, "tables", "--show")
    shown = capsys.readouterr().out
    assert all(METRICS[name].title in shown for name in NAMES)
    assert "—" not in shown.split("\n\n")[1]


def test_asking_later_evaluates_and_gives_the_same(trained: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    """Also by one process instead of a pool."""
    before = {cell: final(trained, cell) for cell in trained.cells}
    models = {cell: trained.paths.model(cell).stat().st_mtime_ns for cell in trained.cells}
    not_asked = {name: False if value is True else None for name, value in ASKED.items()}
    without = fabricated_run.changed(trained, evaluation={"final": not_asked}, tables={"metrics": ["accuracy"]})
    bflp(without, "evaluate")
    assert all(not set(NAMES) & set(final(trained, cell)) for cell in trained.cells)
    bflp(trained, "evaluate")
    assert "2 of 2 cells to evaluate" in capsys.readouterr().err
    assert {cell: final(trained, cell) for cell in trained.cells} == before
    assert {cell: trained.paths.model(cell).stat().st_mtime_ns for cell in trained.cells} == models


def test_accuracy_by_class_is_that_of_the_predictions(trained: Plan) -> None:
    frame = load_classes(trained.results)
    for cell in trained.cells:
        with np.load(trained.paths.evaluation(cell).with_suffix(".npz")) as kept:
            hits, labels = kept["probabilities"].argmax(1) == kept["labels"], kept["labels"]
        expected = [100 * hits[labels == label].mean() for label in range(10)]
        evaluation = json.loads(trained.paths.evaluation(cell).read_text(encoding="utf-8"))
        assert evaluation["class_accuracy"] == pytest.approx(expected)
        rows = frame[frame["model"] == cell.model]
        assert rows["accuracy"].tolist() == pytest.approx(expected)
        assert rows["samples"].tolist() == [5] * 10


def test_other_predictions_or_none_are_made_again(trained: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (trained.paths.evaluation(cell).with_suffix(".npz") for cell in trained.cells)
    right = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.unlink()
    bflp(trained, "evaluate")
    assert "2 of 2 cells to evaluate" in capsys.readouterr().err
    assert first.read_bytes() == right
    assert second.exists()


def test_a_label_that_the_test_set_lacks_has_no_accuracy() -> None:
    probabilities = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.5, 0.4, 0.1]], dtype=np.float32)
    found = Predictions(probabilities, np.array([0, 1, 1]), 10, None, np.zeros(3, dtype=np.float32))
    assert class_accuracy(found) == [100.0, 50.0, None]


def test_the_temperature_is_of_the_held_out_samples(trained: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Predictions] = []
    fit = temperature.fitted

    def noted(predictions: Predictions) -> float:
        seen.append(predictions)
        return fit(predictions)

    monkeypatch.setattr(temperature, "fitted", noted)
    for cell in trained.cells:
        trained.paths.evaluation(cell).unlink()
    bflp(trained, "evaluate")
    for cell, predictions in zip(trained.cells, seen, strict=True):
        with np.load(trained.partition_file(cell)) as partition, np.load(trained.paths.data("synthetic")) as data:
            assert len(predictions.labels) == 40
            np.testing.assert_array_equal(predictions.labels, data["train_labels"][partition["held_out_indices"]])
        found = final(trained, cell)["temperature"]
        assert found == fit(predictions)
        assert nll.metric(temperature.scaled(predictions, found)) <= nll.metric(predictions)


def test_a_partition_that_holds_out_no_sample_is_refused_before_training(tmp_path: Path) -> None:
    top = {"partitions": {"iid": {"held_out": 0.001}}, "evaluation": {"final": {"temperature": True}}}
    grid: dict[str, Any] = {"partitions": ["iid"], "models": ["FEDAVG"], "aggregators": [], "seeds": [0]}
    plan = fabricated_run.plan(tmp_path, samples=200, rounds=1, top=top, **grid)
    with pytest.raises(SystemExit) as caught:
        bflp(plan, "train", "--cell", str(plan.cells[0]))
    assert "holds out no sample of any client: raise partitions.iid.held_out" in str(caught.value)


def vectors(plan: Plan, cell: Cell) -> dict[int, np.ndarray[Any, Any]]:
    """The models of the last round's clients, by safetensors alone."""
    tensors = load_file(plan.paths.clients(cell))
    return dict(zip(tensors["clients"].tolist(), tensors["vectors"], strict=True))


def model(plan: Plan, cell: Cell) -> np.ndarray[Any, Any]:
    network = json.loads(plan.paths.result(cell).read_text(encoding="utf-8"))["network"]
    tensors = load_file(plan.paths.model(cell))
    return np.concatenate([tensors[name].ravel() for name in network["tensors"]])


def test_what_the_clients_sent_is_what_the_model_was_made_of(trained: Plan) -> None:
    cell = trained.cells[0]
    sent = vectors(trained, cell)
    assert len(sent) == 3
    with np.load(trained.partition_file(cell)) as partition:
        sizes = np.diff(partition["offsets"])[list(sent)]
    expected = np.average(np.stack(list(sent.values())), axis=0, weights=sizes)
    np.testing.assert_allclose(model(trained, cell), expected, rtol=1e-5, atol=1e-7)
    first, second, _ = sent.values()
    assert not np.array_equal(first, second)


def evaluated(plan: Plan, **asked: Any) -> Plan:
    """The plan, evaluated with other things asked for."""
    other = fabricated_run.changed(plan, evaluation={"final": asked})
    bflp(other, "evaluate")
    return other


@pytest.mark.parametrize("rule", ["W2", "RKL", "FKL"])
def test_personal_models_go_from_the_global_one_to_the_clients_own(trained: Plan, rule: str) -> None:
    for share, same in ((0.0, "global"), (1.0, "local")):
        plan = evaluated(trained, personal={"local_share": share, "rule": rule})
        for cell in plan.cells:
            found = final(plan, cell)
            for name in ("accuracy", "ece", "nll"):
                assert found[f"personal_on_local_{name}"] == pytest.approx(found[f"{same}_on_local_{name}"], rel=1e-4)
                on_global = found[name] if same == "global" else found[f"local_on_global_{name}"]
                assert found[f"personal_on_global_{name}"] == pytest.approx(on_global, rel=1e-4)


def test_each_client_of_the_last_round_has_its_own_numbers(trained: Plan) -> None:
    """A client's own model is measured as if it were the final one; who did not train has none."""
    evaluated(trained, **ASKED)
    for cell in trained.cells:
        evaluation = json.loads(trained.paths.evaluation(cell).read_text(encoding="utf-8"))
        sent, clients = vectors(trained, cell), evaluation["clients"]
        for name in NAMES:
            if "_on_" in name:
                values = clients[name]
                assert [value is None for value in values] == [client not in sent for client in range(CLIENTS)]
                mean = np.mean([value for value in values if value is not None])
                assert evaluation["final"][name] == pytest.approx(mean, abs=1e-5)
        # The global model on a client's data is what every evaluation has.
        for metric in ("accuracy", "ece", "nll"):
            for client in sent:
                assert clients[f"global_on_local_{metric}"][client] == clients[metric][client]


def test_the_ensemble_of_a_single_client_is_its_model(tmp_path: Path) -> None:
    top = {
        "setups": {"3": {"fraction": 0.3, "rounds": 2}},
        "training": {"local_epochs": 1, "batch_size": 20},
        "evaluation": {"final": {"ensemble": {"beta": 0.3}, "personal": {"local_share": 0.5}}},
        "keep_clients": True,
    }
    grid: dict[str, Any] = {"partitions": ["iid"], "clients": [3], "models": ["FVBWA"], "aggregators": ["W2"]}
    plan = fabricated_run.plan(tmp_path, samples=200, top=top, seeds=[0], **grid)
    bflp(plan, "train", "--cell", str(plan.cells[0]))
    found = final(plan, plan.cells[0])
    assert found["ensemble_beta"] == 0.3
    for kind in ("mixture", "product", "beta"):
        for name in ("accuracy", "ece", "nll"):
            assert found[f"{name}_{kind}"] == pytest.approx(found[f"local_on_global_{name}"], rel=1e-5)
            # And the model that the server made of one client's is that client's.
            assert found[f"{name}_{kind}"] == pytest.approx(found[name], rel=1e-4)
