"""Data that were prepared from something else than the config says now."""

from __future__ import annotations

import json
from pathlib import Path

import fabricated_run
import pytest

from bflp.cli import prepare, train
from bflp.errors import DataError
from bflp.grid.plan import Plan
from bflp.provenance.reasons import record_preparation


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    plan = fabricated_run.plan(tmp_path, samples=200, models=["FED"], seeds=[0])
    fabricated_run.make(plan)
    return plan


def test_a_job_refuses_data_that_are_known_to_be_of_something_else(plan: Plan) -> None:
    """Where Snakemake has no record of the preparation it does not notice; all cells would train for nothing."""
    data, job = plan.paths.data("synthetic"), plan.prepare_job("synthetic")
    train._refuse_outdated(data, job)  # nobody knows
    record_preparation(plan, "synthetic", job)
    train._refuse_outdated(data, job)
    with pytest.raises(DataError, match=r"was prepared from something else.*--forcerun prepare"):
        train._refuse_outdated(data, json.dumps({**json.loads(job), "fingerprint": "0" * 16}))


def test_by_hand_they_are_prepared_again(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(prepare, "prepare", lambda _, dataset: done.append(dataset))
    monkeypatch.setattr(prepare, "is_current", lambda *_: True)
    job = plan.prepare_job("synthetic")
    record_preparation(plan, "synthetic", job)
    prepare.prepare_if_needed(plan, "synthetic")
    assert done == []
    record_preparation(plan, "synthetic", json.dumps({**json.loads(job), "fingerprint": "0" * 16}))
    prepare.prepare_if_needed(plan, "synthetic")
    assert done == ["synthetic"]
