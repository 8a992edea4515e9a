"""The state of a cell: each kind and each reason, and the same answer from all that ask."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fabricated_run
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file

from bflp.cli import merge, why
from bflp.cli.common import finished_cells
from bflp.errors import DataError
from bflp.files import sha256_of
from bflp.grid.cell import Cell
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.provenance.state import MOST_LISTED, announce, data_hashes, describe_stale, state, states
from bflp.provenance.verify import verify
from bflp.reporting import status
from bflp.results.evaluation import Evaluation
from bflp.results.frame import frame
from bflp.results.result import Result
from bflp.runtime.clients import save_clients
from bflp.runtime.kept import keep

ZEROS = "f" * 64


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Two cells that are done; the images of `other` are held against those of their data set."""
    monkeypatch.chdir(tmp_path)
    top = {
        "datasets": {"other": {"source": str(tmp_path / "synthetic.npz")}},
        "evaluation": {"out_of_distribution": "other"},
    }
    plan = fabricated_run.plan(tmp_path, samples=200, top=top, models=["FED", "FVBA"], aggregators=["EAA"], seeds=[0])
    fabricated_run.make(plan)
    return plan


def changed_result(change: Callable[[dict[str, Any]], Any]) -> Callable[[Plan, Cell], Any]:
    return lambda plan, cell: fabricated_run.rewrite(plan.paths.result(cell), Result, change)


def made_with_clients(digest: str) -> Callable[[Plan, Cell], Any]:
    return changed_result(lambda content: content["environment"].update(clients_file=digest))


def changed_evaluation(change: Callable[[dict[str, Any]], Any]) -> Callable[[Plan, Cell], Any]:
    return lambda plan, cell: fabricated_run.rewrite(plan.paths.evaluation(cell), Evaluation, change)


def other_settings(**sections: Any) -> Callable[[Plan, Cell], Plan]:
    return lambda plan, cell: fabricated_run.changed(plan, **sections)


class Case(NamedTuple):
    """change: of a cell's files, or into another plan; what the state then is. why: what `bflp why` says."""

    change: Callable[[Plan, Cell], Any]
    kind: str
    reason: str = ""
    evaluation: str = ""
    why: str = "up to date"


EVALUATED = "would be evaluated, without training"
CASES = {
    "done": Case(lambda plan, cell: None, "done"),
    "missing": Case(lambda plan, cell: plan.paths.result(cell).unlink(), "missing", why="no result yet"),
    "damaged": Case(
        lambda plan, cell: plan.paths.result(cell).write_text("{"),
        "damaged",
        "is not valid JSON",
        why="its result is damaged",
    ),
    "other settings": Case(
        other_settings(training={"momentum": 0.5}),
        "stale",
        "other settings (training.momentum 0.9 -> 0.5)",
        why="its result is of other settings",
    ),
    "other code": Case(
        changed_result(lambda content: content.update(fingerprint="0" * 16)),
        "stale",
        "other code",
        why="its result is of other code",
    ),
    "other data": Case(
        lambda plan, cell: [
            change(lambda content: content["data"].update(dataset=ZEROS))(plan, cell)
            for change in (changed_result, changed_evaluation)
        ],
        "stale",
        "other data (images or labels of synthetic)",
        why="its result is of other data",
    ),
    "clients not kept": Case(
        other_settings(keep_clients=True),
        "stale",
        "a training that did not keep its clients' models (keep_clients)",
        why="its result is of a training that did not keep its clients' models",
    ),
    "diverged": Case(
        lambda plan, cell: fabricated_run.make(plan, lambda other: other == cell, [cell]),
        "diverged",
        why="diverged, and recorded as that",
    ),
    "no evaluation": Case(
        lambda plan, cell: plan.paths.evaluation(cell).unlink(), "done", evaluation="is missing", why=EVALUATED
    ),
    "damaged evaluation": Case(
        lambda plan, cell: plan.paths.evaluation(cell).write_text("{"),
        "done",
        evaluation="is damaged (",
        why=EVALUATED,
    ),
    "evaluation of another model": Case(
        changed_evaluation(lambda content: content.update(model_sha256=ZEROS)),
        "done",
        evaluation="is of another model",
        why=EVALUATED,
    ),
    "evaluation with other settings": Case(
        other_settings(evaluation={"ece_bins": 15}),
        "done",
        evaluation="is of other settings (evaluation.ece_bins 20 -> 15)",
        why=EVALUATED,
    ),
    "evaluation by other code": Case(
        changed_evaluation(lambda content: content.update(fingerprint="0" * 16)),
        "done",
        evaluation="is of other code",
        why=EVALUATED,
    ),
    "evaluation with other test data": Case(
        changed_evaluation(lambda content: content["data"].update(dataset=ZEROS)),
        "done",
        evaluation="is of other data (images or labels of synthetic)",
        why=EVALUATED,
    ),
    "evaluation with another partition": Case(
        changed_evaluation(lambda content: content["data"].update(partition=ZEROS)),
        "done",
        evaluation="is of other data (images or labels of synthetic)",
        why=EVALUATED,
    ),
    "evaluation with other images": Case(
        changed_evaluation(lambda content: content["data"].update(out_of_distribution=ZEROS)),
        "done",
        evaluation="is of other data (images of other)",
        why=EVALUATED,
    ),
}
IN_STATUS = {"missing": "waiting", "damaged": "failed", "stale": "stale", "diverged": "diverged", "done": "done"}


def said(verb: Any, plan: Plan) -> str:
    file = fabricated_run.config_file(plan, Path("asked.yaml"))
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    with contextlib.redirect_stdout(io.StringIO()) as text:
        verb.run(parser.parse_args(["--configfile", str(file)]))
    return text.getvalue()


@pytest.mark.parametrize("name", CASES)
def test_all_that_ask_get_the_same_answer(plan: Plan, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    case, cell = CASES[name], plan.cells[-1]
    now = case.change(plan, cell)
    plan = now if isinstance(now, Plan) else plan
    found = state(plan, cell, data_hashes(plan))
    assert found.kind == case.kind
    assert case.reason in found.reason and bool(case.reason) == bool(found.reason)
    assert found.is_right == (case.kind in ("done", "diverged"))
    assert (found.result is None) == (case.kind in ("missing", "damaged"))
    assert found.evaluation_reason.startswith(case.evaluation)
    assert (found.evaluation is None) == (found.result is None or bool(case.evaluation))

    shown = next(one for one in status.find(plan).cells if one.cell == cell)
    assert shown.state == IN_STATUS[case.kind]
    assert case.reason in shown.reason

    assert case.why in said(why, plan)

    report = verify(plan)
    assert (cell in report.missing) == (case.kind == "missing")
    about = {plan.paths.result(cell): case.reason, plan.paths.evaluation(cell): case.evaluation}
    wrong = {finding.path: str(finding) for finding in report.wrong if finding.path in about}
    expected = {path: words for path, words in about.items() if words}
    assert wrong.keys() == expected.keys()
    assert all(words in wrong[path] for path, words in expected.items())

    table = frame(finished_cells(plan))
    row = table[(table["model"] == cell.model) & (table["aggregator"] == cell.aggregator)]
    assert len(row) == (found.result is not None)
    if len(row):
        assert row["diverged"].item() == (case.kind == "diverged")
        assert pd.isna(row["accuracy"].item()) == (bool(case.evaluation) or case.kind == "diverged")
    warned = capsys.readouterr().err
    assert (str(cell) in warned) == (case.kind in ("damaged", "stale") or bool(case.evaluation))

    if case.kind in ("done", "diverged") and not case.evaluation:
        assert "2 cells" in said(merge, plan)
    else:
        with pytest.raises(DataError) as refused:
            said(merge, plan)
        assert str(cell) in str(refused.value).replace(".json", "")
        assert (case.reason or case.evaluation) in str(refused.value)


def test_the_other_cells_are_not_concerned(plan: Plan) -> None:
    first, last = plan.cells
    for name, case in CASES.items():
        if "settings" not in name and name != "clients not kept":
            fabricated_run.make(plan)
            case.change(plan, last)
            found = state(plan, first, data_hashes(plan))
            assert (found.kind, found.evaluation_reason) == ("done", ""), name


def test_new_data_make_all_their_results_stale(plan: Plan) -> None:
    found = [state(plan, cell, {"synthetic": "e" * 64, "other": "e" * 64}) for cell in plan.cells]
    assert {(item.kind, item.evaluation_reason) for item in found} == {("stale", "is of other data (images of other)")}


def test_data_that_are_not_there_make_nothing_stale(plan: Plan) -> None:
    for dataset in plan.datasets():
        plan.paths.data(dataset).with_suffix(".json").unlink()
    assert {item.kind for item in states(plan)} == {"done"}


def test_stale_results_are_listed_with_what_to_do(plan: Plan) -> None:
    stale = states(fabricated_run.changed(plan, training={"learning_rate": 0.5}))
    text = describe_stale(stale * 15)
    assert text.startswith("30 result(s)")
    assert text.count("other settings (training.learning_rate 0.01 -> 0.5)") == MOST_LISTED
    assert f"and {30 - MOST_LISTED} more" in text
    assert "Run snakemake again to train these cells" in text
    assert all(str(item.cell) in text for item in stale)


def test_what_will_be_replaced_is_said_to_stay_only_where_it_is_kept(
    plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    now, kept = fabricated_run.changed(plan, training={"learning_rate": 0.5}), plan.paths.kept
    announce(plan)
    assert capsys.readouterr().err == ""
    for cell, lost in zip(plan.cells, (2, 1), strict=True):
        announce(now)
        assert f"{lost} of them are not in {kept}: going back to what made these trains them" in capsys.readouterr().err
        identity = Job.parse(plan.job(cell)).identity(data_hashes(plan)[cell.dataset])
        keep(kept, identity, {"result": plan.paths.result(cell), "model": plan.paths.model(cell)})
    announce(now)
    said = capsys.readouterr().err
    assert f"They stay in {kept}: going back to what made them trains nothing." in said and " not " not in said


def test_without_its_model_a_result_is_not_said_to_stay(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    now, cell = fabricated_run.changed(plan, training={"learning_rate": 0.5}), plan.cells[0]
    identity = Job.parse(plan.job(cell)).identity(data_hashes(plan)[cell.dataset])
    keep(plan.paths.kept, identity, {"result": plan.paths.result(cell)})
    announce(now)
    assert "2 of them are not in" in capsys.readouterr().err


def test_an_evaluation_on_another_number_of_images_is_found(plan: Plan) -> None:
    def twice(content: dict[str, Any]) -> None:
        found = content["reliability"]
        found |= {part: [2 * number for number in found[part]] for part in ("counts", "correct")}

    changed_evaluation(twice)(plan, plan.cells[0])
    assert [str(finding) for finding in verify(plan).wrong] == [
        f"{plan.paths.evaluation(plan.cells[0])}: was made on 100 images, the test set has 50: delete it and run "
        "bflp evaluate"
    ]


def test_clients_models_that_training_did_not_write_are_found(plan: Plan) -> None:
    plan = fabricated_run.changed(plan, keep_clients=True)
    files = [plan.paths.clients(cell) for cell in plan.cells]
    for cell, file in zip(plan.cells, files, strict=True):
        size = sum(tensor.size for tensor in load_file(plan.paths.model(cell)).values())
        save_clients(file, {0: torch.zeros(size)}, size)
        made_with_clients(sha256_of(file))(plan, cell)
    assert verify(plan).wrong == []
    content = bytearray(files[1].read_bytes())
    content[-1] ^= 1
    files[1].write_bytes(content)
    [finding] = verify(plan).wrong
    assert finding.path == files[1] and "is not what the cell's training wrote" in str(finding)


def test_what_diverged_with_other_settings_is_to_be_trained_again(plan: Plan) -> None:
    cell, now = plan.cells[-1], fabricated_run.changed(plan, training={"momentum": 0.5})
    fabricated_run.make(plan, lambda other: other == cell, [cell])
    found = state(now, cell, data_hashes(now))
    assert (found.kind, found.is_right) == ("stale", False)


def test_every_reason_is_named(plan: Plan) -> None:
    cell, now = plan.cells[-1], fabricated_run.changed(plan, training={"momentum": 0.5})
    changed_result(lambda content: content.update(fingerprint="0" * 16))(plan, cell)
    reason = state(now, cell, data_hashes(now)).reason
    assert reason.startswith("other settings (training.momentum 0.9 -> 0.5) and other code (")
