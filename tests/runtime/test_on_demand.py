"""What is measured on demand, through the real commands: asked for before or after training, it never trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fabricated_run
import numpy as np
import pytest

from bflp.cli import main
from bflp.engine.evaluators import temperature
from bflp.engine.metrics import nll
from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import Predictions
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan

CLIENTS = 4
ASKED = {"temperature": True}
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
        "evaluation": {"monte_carlo_samples": 3, "final": ASKED},
        "tables": {"metrics": ["accuracy", "nll", *NAMES]},
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
    grid = {"partitions": ["iid"], "models": ["FEDAVG"], "aggregators": [], "seeds": [0]}
    plan = fabricated_run.plan(tmp_path, samples=200, rounds=1, top=top, **grid)
    with pytest.raises(SystemExit) as caught:
        bflp(plan, "train", "--cell", str(plan.cells[0]))
    assert "holds out no sample of any client: raise partitions.iid.held_out" in str(caught.value)
