"""The command that says why cells would run, on made-up results."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import fabricated_run
import pytest
import torch

from bflp.cli import parser_of
from bflp.cli.why import run
from bflp.datasets import prepared
from bflp.engine.work import Broadcast
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.provenance.reasons import preparation, record_preparation
from bflp.results.result import Result
from bflp.runtime import progress
from bflp.runtime.checkpoint import Checkpoints, Progress

ROWS = 12


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """12 rows, 2 seeds, all done; without a config.yaml in the folder."""
    monkeypatch.chdir(tmp_path)
    plan = fabricated_run.plan(tmp_path, seeds=[0, 1])
    fabricated_run.make(plan)
    for dataset in plan.datasets():
        record_preparation(plan, dataset, plan.prepare_job(dataset))
    return plan


def why(plan: Plan, *arguments: str, **sections: Any) -> str:
    of = fabricated_run.changed(plan, **sections)
    file = fabricated_run.config_file(of, Path(plan.settings.data_dir, "config.yaml"))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        run(parser_of("why").parse_args([*arguments, "--configfile", str(file)]))
    return said.getvalue()


def test_all_is_done(plan: Plan) -> None:
    assert why(plan) == f"{2 * ROWS} cells: {2 * ROWS} up to date, 0 would run\n"


def test_settings_by_their_name_in_the_config(plan: Plan) -> None:
    said = why(plan, training={"learning_rate": 0.5}, aggregators={"PPA": {"population": 77}})
    assert "24 cells: 0 up to date, 24 would run" in said
    assert "20 cells: its result is of other settings (training.learning_rate 0.01 -> 0.5)" in said
    assert "(aggregators.PPA.population 1000 -> 77, training.learning_rate 0.01 -> 0.5)" in said
    said = why(plan, setups={"10": {"fraction": 0.5}}, partitions={"noniid": {"strategy": "iid"}})
    assert "partitions.noniid.strategy" in said and "setups.10.fraction 1.0 -> 0.5" in said


def test_what_concerns_the_final_evaluation_trains_nothing(plan: Plan) -> None:
    said = why(plan, evaluation={"ece_bins": 15})
    assert said == (
        "24 cells: 24 up to date, 0 would run\nof those up to date 24 would be evaluated, without training\n"
    )
    assert why(plan, "--paths", evaluation={"ece_bins": 15}) == ""


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
        result["environment"]["code"] |= {"bflp.aggregators.cf": "other", "bflp.gone": "digest", "own.py": "digest"}

    path = fabricated_run.rewrite(plan.paths.result(cell), Result, of_other_code)
    said = why(plan)
    assert "1 cell: its result is of other code (bflp/aggregators/cf.py, bflp/gone.py, own.py)" in said
    assert f"  {cell}\n" in said
    fabricated_run.rewrite(path, Result, lambda result: result["environment"].pop("code"))
    assert "other code (fingerprint 0000000000000000)" in why(plan)


def test_data_that_have_to_be_prepared_again(plan: Plan) -> None:
    dataset = plan.datasets()[0]
    assert preparation(plan, dataset) is None
    source = Path(str(plan.settings.source(dataset)))
    source.touch()
    assert preparation(plan, dataset) is None
    source.write_bytes(source.read_bytes() + b" ")
    said = why(plan)
    assert f"24 cells: the data set {dataset} has to be prepared again: {source} has other content" in said
    # Merging refuses the results meanwhile.
    assert len(why(plan, "--paths").split()) == 24
    plan.paths.made(dataset).unlink()
    assert preparation(plan, dataset) is None


def test_data_that_are_not_there(plan: Plan) -> None:
    """Snakemake makes them and what depends on them again; but merging would take the results: none is to delete."""
    dataset = plan.datasets()[0]
    file = plan.paths.data(dataset)
    file.unlink()
    assert f"24 cells: the data set {dataset} has to be prepared again: there is no {file}" in why(plan)
    assert why(plan, "--paths").split() == []


def test_prepared_by_other_code(plan: Plan) -> None:
    file = plan.paths.made("synthetic")
    record = json.loads(file.read_text(encoding="utf-8"))
    record["job"]["fingerprint"], record["code"]["bflp.datasets.convert"] = "0" * 16, "other"
    file.write_text(json.dumps(record), encoding="utf-8")
    assert "has to be prepared again: other code (bflp/datasets/convert.py)" in why(plan)


def test_no_result(plan: Plan) -> None:
    new, failed, interrupted, damaged, kept = plan.cells[:5]
    for cell in (new, failed, interrupted, kept):
        plan.paths.result(cell).unlink()
    reason = f"the training diverged in round 3 of {failed}"
    progress.write(plan.paths.progress(failed), state="failed", reason=reason)
    Checkpoints(plan.paths.kept, identity(plan, interrupted)).save(Progress(12, Broadcast(torch.zeros(3))))
    for suffix in (".json", ".safetensors"):
        (plan.paths.kept / f"{identity(plan, kept)}{suffix}").touch()
    # Without its model nothing is put back.
    (plan.paths.kept / f"{identity(plan, new)}.json").touch()
    plan.paths.result(damaged).write_text("{", encoding="utf-8")
    said = why(plan)
    groups = dict(re.findall(r"^1 cell: (.*)\n  (.*)$", said, flags=re.MULTILINE))
    assert groups == {
        "no result yet": str(new),
        "no result yet; the last try ended with: the training diverged in round 3 of the cell": str(failed),
        "no result yet, but a checkpoint to go on from": str(interrupted),
        "no result yet, but one is kept that will be put back": str(kept),
        "its result is damaged: merging will refuse it until you delete it": str(damaged),
    }
    assert why(plan, "--paths").split() == [str(plan.paths.result(damaged))]


def test_more_rounds_go_on(plan: Plan) -> None:
    shorter, other = plan.cells[:2]
    Checkpoints(plan.paths.kept, identity(plan, shorter)).save(Progress(12, Broadcast(torch.zeros(3))))
    said = why(plan, setups={"10": {"rounds": 13}})
    reason = "its result is of other settings (setups.10.rounds 12 -> 13)"
    assert f"1 cell: {reason}, but a checkpoint to go on from\n  {shorter}\n" in said
    assert f"{2 * ROWS - 1} cells: {reason}\n  {other}\n" in said


def test_what_is_kept_is_not_known_without_the_data(plan: Plan) -> None:
    plan.paths.result(plan.cells[0]).unlink()
    plan.paths.data("synthetic").unlink()
    prepared.summary_file(plan.paths.data("synthetic")).unlink()
    assert "1 cell: no result yet\n" in why(plan)
    plan.paths.kept.mkdir(exist_ok=True)
    assert "1 cell: no result yet; whether one is kept is known once synthetic is prepared\n" in why(plan)


def identity(plan: Plan, cell: Any) -> str:
    data = prepared.read_summary(plan.paths.data(cell.dataset))["sha256"]
    return Job.parse(plan.job(cell)).identity(data)


def test_cells_that_are_recorded_as_diverged(plan: Plan) -> None:
    fabricated_run.make(plan, wanted=lambda cell: cell == plan.cells[0], diverged=plan.cells[:1])
    said = why(plan)
    assert "24 cells: 24 up to date, 0 would run" in said
    assert f"1 cell: up to date: diverged, and recorded as that\n  {plan.cells[0]}\n" in said
