"""The command that says why cells would run, on made-up results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import fabricated_run
import pytest
import yaml

from bflp.fingerprint import cell_modules, digests
from bflp.grid.plan import Cell, Plan
from bflp.provenance.reasons import changed_files, preparation, record_preparation

PROJECT = Path(__file__).resolve().parents[2]
ROWS = 12


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """12 rows, 2 seeds, all done."""
    plan = Plan(fabricated_run.settings(tmp_path, seeds=[0, 1]))
    fabricated_run.make(plan)
    for cell in plan.cells:
        job = json.loads(plan.job(cell))
        rewrite(plan, cell, lambda result, job=job: result["environment"].update(code=digests(cell_modules(job))))
    for dataset in plan.datasets():
        record_preparation(plan, dataset, plan.prepare_job(dataset))
    return plan


def rewrite(plan: Plan, cell: Cell, change: Any) -> None:
    path = plan.result_file(cell)
    result = json.loads(path.read_text(encoding="utf-8"))
    change(result)
    path.write_text(json.dumps(result), encoding="utf-8")


def why(plan: Plan, *arguments: str, **settings: Any) -> str:
    file = fabricated_run.config_file(plan, Path(plan.settings.data_dir, "config.yaml"))
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    for key, value in settings.items():
        config[key] = {**config.get(key, {}), **value} if isinstance(value, dict) else value
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [sys.executable, PROJECT / "workflow/scripts/why.py", *arguments, "--configfile", file]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_is_done(plan: Plan) -> None:
    assert why(plan) == f"{2 * ROWS} cells: {2 * ROWS} up to date, 0 would run\n"


def test_settings_by_their_name_in_the_config(plan: Plan) -> None:
    said = why(plan, training={"learning_rate": 0.5}, posterior={"ppa_population": 77})
    assert "24 cells: 0 up to date, 24 would run" in said
    assert "20 cells: its result is of other settings (training.learning_rate 0.01 -> 0.5)" in said
    assert "(posterior.ppa_population 1000 -> 77, training.learning_rate 0.01 -> 0.5)" in said
    said = why(plan, setups={10: {"fraction": 0.5, "rounds": 12}}, partitions={"noniid": {"strategy": "iid"}})
    assert "partitions.noniid.strategy" in said and "setups.10.fraction 1.0 -> 0.5" in said


def test_many_cells_are_shortened(plan: Plan) -> None:
    said = why(plan, training={"batch_size": 5})
    assert "  and 14 more (--all lists them)\n" in said
    assert said.count("seed") == 10
    assert why(plan, "--all", training={"batch_size": 5}).count("seed") == 24
    assert why(plan, "PPA/seed1", training={"batch_size": 5}).startswith("2 cells: 0 up to date, 2 would run")


def test_changed_code_by_its_files(plan: Plan) -> None:
    cell = next(cell for cell in plan.cells if cell.aggregator == "CF")

    def of_other_code(result: dict[str, Any]) -> None:
        result["fingerprint"] = "0" * 16
        result["environment"]["code"]["bflp.aggregators.cf"] = "other"
        result["environment"]["code"]["bflp.gone"] = "digest"

    rewrite(plan, cell, of_other_code)
    said = why(plan)
    assert "1 cell: its result is of other code (bflp/aggregators/cf.py, bflp/gone.py)" in said
    assert f"  {cell}\n" in said
    rewrite(plan, cell, lambda result: result["environment"].pop("code"))
    assert "other code (fingerprint 0000000000000000, now " in why(plan)


def test_changed_files() -> None:
    assert changed_files({"bflp.rng": "a", "bflp.files": "b"}, {"bflp.rng": "a", "bflp.files": "c"}) == [
        "bflp/files.py"
    ]
    assert changed_files({"bflp.datasets": "a"}, {}) == ["bflp/datasets/__init__.py"]


def test_data_that_are_to_be_prepared_anew(plan: Plan) -> None:
    dataset = plan.datasets()[0]
    assert preparation(plan, dataset) is None
    source = Path(str(plan.settings.source(dataset)))
    source.touch()
    assert preparation(plan, dataset) is None
    source.write_bytes(source.read_bytes() + b" ")
    said = why(plan)
    assert f"24 cells: the data set {dataset} is to be prepared anew: {source} has other content" in said
    # Merging refuses the results meanwhile.
    assert len(why(plan, "--paths").split()) == 24
    plan.made_file(dataset).unlink()
    assert preparation(plan, dataset) is None


def test_data_that_are_not_there(plan: Plan) -> None:
    """Snakemake makes them anew, and what depends on them; but merging would take the results, so none is to delete."""
    dataset = plan.datasets()[0]
    file = plan.data_file(dataset)
    file.unlink()
    assert f"24 cells: the data set {dataset} is to be prepared anew: there is no {file}" in why(plan)
    assert why(plan, "--paths").split() == []


def test_prepared_by_other_code(plan: Plan) -> None:
    file = plan.made_file("synthetic")
    record = json.loads(file.read_text(encoding="utf-8"))
    record["job"]["fingerprint"], record["code"]["bflp.datasets.download"] = "0" * 16, "other"
    file.write_text(json.dumps(record), encoding="utf-8")
    assert "is to be prepared anew: other code (bflp/datasets/download.py)" in why(plan)


def test_no_result(plan: Plan) -> None:
    new, failed, interrupted, damaged = plan.cells[:4]
    for cell in (new, failed, interrupted):
        plan.result_file(cell).unlink()
    log = plan.log_file(failed)
    log.parent.mkdir(parents=True)
    log.write_text(f"starts\nerror: the training diverged in round 3 of {failed}\n", encoding="utf-8")
    plan.checkpoint_folder(interrupted).mkdir(parents=True)
    (plan.checkpoint_folder(interrupted) / "round00000012.safetensors").touch()
    plan.result_file(damaged).write_text("{", encoding="utf-8")
    said = why(plan)
    groups = dict(re.findall(r"^1 cell: (.*)\n  (.*)$", said, flags=re.MULTILINE))
    assert groups == {
        "no result yet": str(new),
        "no result yet; the last try ended with error: the training diverged in round 3 of the cell": str(failed),
        "no result yet, but a checkpoint to go on from": str(interrupted),
        "its result is damaged: merging will refuse it until you delete it": str(damaged),
    }
    assert why(plan, "--paths").split() == [str(plan.result_file(damaged))]


def test_cells_that_are_recorded_as_diverged(plan: Plan) -> None:
    fabricated_run.make(plan, diverged=frozenset(plan.cells[:1]))
    said = why(plan)
    assert "24 cells: 24 up to date, 0 would run" in said
    assert f"1 cell: up to date: diverged, and recorded as that\n  {plan.cells[0]}\n" in said
