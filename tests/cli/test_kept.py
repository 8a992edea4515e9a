"""The command that shows what is kept and frees the space: it removes what it says, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fabricated_run
import pytest

from bflp.cli import parser_of
from bflp.cli.kept import run
from bflp.datasets import prepared
from bflp.errors import DataError, UserError
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.provenance.reasons import record_preparation
from bflp.runtime import progress
from bflp.runtime.evaluate_block import evaluate_block
from bflp.runtime.kept import keep
from bflp.runtime.lock import only_one

OTHER: dict[str, Any] = {"training": {"learning_rate": 0.5}}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """One cell that is done and kept, and is kept of OTHER settings, too."""
    monkeypatch.chdir(tmp_path)
    plan = fabricated_run.plan(tmp_path, samples=200, models=["FED"], seeds=[0])
    for of in (fabricated_run.changed(plan, **OTHER), plan):
        fabricated_run.make(of)
        cell, paths = of.cells[0], of.paths
        files = {"result": paths.result(cell), "model": paths.model(cell), "evaluation": paths.evaluation(cell)}
        keep(paths.kept, identity(of), files)
    return plan


def identity(of: Plan) -> str:
    data: str = prepared.read_summary(of.paths.data("synthetic"))["sha256"]
    return Job.parse(of.job(of.cells[0])).identity(data)


def kept(plan: Plan, *arguments: str, **sections: Any) -> None:
    file = fabricated_run.config_file(fabricated_run.changed(plan, **sections), Path("asked.yaml"))
    run(parser_of("kept").parse_args([*arguments, "--configfile", str(file)]))


def names(plan: Plan) -> set[str]:
    return {file.name for file in plan.paths.kept.iterdir()}


def of_identity(name: str) -> set[str]:
    return {f"{name}{suffix}" for suffix in (".json", ".safetensors", ".evaluation.json")}


def test_others_are_removed_with_what_a_killed_job_left_of_them(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    own, other = identity(plan), identity(fabricated_run.changed(plan, **OTHER))
    left = {of: plan.paths.kept / f".{of}.checkpoint.safetensors.77.tmp" for of in (own, other)}
    for file in left.values():
        file.touch()
    kept(plan)
    said = capsys.readouterr().out
    assert "this config: 4 files and folders, 0.0 MB of their own (synthetic)" in said
    assert "other settings, code or data: 4 files" in said
    assert names(plan) == of_identity(own) | of_identity(other) | {file.name for file in left.values()}
    kept(plan, "--remove", "others")
    assert names(plan) == of_identity(own) | {left[own].name}
    kept(plan, "--remove", "all")
    assert names(plan) == set()


@pytest.mark.parametrize("how", ["missing", "outdated"])
def test_without_data_nothing_is_known_to_be_of_others(
    plan: Plan, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their hash is part of the files' names; the same may come of preparing them again."""
    if how == "missing":
        plan.paths.data("synthetic").with_suffix(".json").unlink()
    else:
        record_preparation(plan, "synthetic", plan.prepare_job("synthetic"))
        made = plan.paths.made("synthetic")
        record = json.loads(made.read_text(encoding="utf-8"))
        record["job"]["fingerprint"] = "0" * 16
        made.write_text(json.dumps(record), encoding="utf-8")
    before = names(plan)
    with pytest.raises(DataError, match=r"before its data are prepared \(synthetic\): snakemake --cores 1 prepare_all"):
        kept(plan, "--remove", "others")
    assert names(plan) == before and len(before) == 6
    kept(plan)
    assert "not known before its data are prepared (synthetic)" in capsys.readouterr().out
    kept(plan, "--remove", "all")
    assert names(plan) == set()


def test_what_clients_remember_goes_with_its_checkpoint(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    own, other = (
        plan.paths.kept / f"{identity(of).partition('-')[0]}.clients"
        for of in (plan, fabricated_run.changed(plan, **OTHER))
    )
    for folder in (own, other):
        (folder / "7").mkdir(parents=True)
        (folder / "7" / "3.safetensors").write_bytes(bytes(2_000_000))
    kept(plan)
    said = capsys.readouterr().out
    assert "this config: 4 files and folders, 2.0 MB" in said
    assert "other settings, code or data: 4 files and folders, 2.1 MB" in said
    kept(plan, "--remove", "others")
    assert own.is_dir() and not other.exists()
    kept(plan, "--remove", "all")
    assert names(plan) == set()


def test_stale_results_are_not_evaluated_as_if_they_were_right(plan: Plan) -> None:
    """An evaluation has neither the settings nor the code of the training: it would count as right later."""
    cell = plan.cells[0]
    other = fabricated_run.changed(plan, **OTHER, evaluation={"ece_bins": 7})
    before = plan.paths.evaluation(cell).read_bytes()
    with pytest.raises(DataError, match=r"1 result\(s\) are not what the present settings"):
        evaluate_block(other, cell.block)
    assert plan.paths.evaluation(cell).read_bytes() == before


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"cell": 3}', b"\xff"])
def test_a_damaged_result_can_be_seen_and_removed(
    plan: Plan, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    own = identity(plan)
    file = plan.paths.kept / f"{identity(fabricated_run.changed(plan, **OTHER))}.json"
    file.write_bytes(content)
    kept(plan, "--remove", "others")
    assert f"({file.name} is damaged)" in capsys.readouterr().out and names(plan) == of_identity(own)


def test_nothing_is_removed_of_a_cell_that_runs(plan: Plan) -> None:
    """Its clients would go on as if they had never trained."""
    file = plan.paths.progress(plan.cells[0])
    progress.write(file, state="running", identity=identity(plan))
    with only_one(file.with_suffix(".lock"), "the cell"):
        kept(plan, "--remove", "others")
        assert names(plan) == of_identity(identity(plan))
        for which, settings in (("all", {}), ("others", OTHER)):
            with pytest.raises(UserError, match=r"seed0.lock: a cell is being trained by process .*: wait for it"):
                kept(plan, "--remove", which, **settings)
        assert names(plan) == of_identity(identity(plan))
    kept(plan, "--remove", "all")
    assert names(plan) == set()
