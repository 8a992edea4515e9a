"""Reading results: damaged, foreign and stale ones are refused by name, and the rest becomes one tidy table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fabricated_run
import numpy as np
import pandas as pd
import pytest

from bflp.datasets import prepared as arrays
from bflp.errors import DataError
from bflp.grid.plan import Cell, Plan
from bflp.results.file import write_result
from bflp.results.frame import collect, describe_stale, read_result
from bflp.settings.schema import Settings


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A small grid whose 6 cells have results."""
    settings = fabricated_run.settings(
        tmp_path, samples=200, aggregators=["EAA", "PPA"], seeds=[0, 1], models=["FED", "FVBA"]
    )
    plan = Plan(settings)
    fabricated_run.make(plan)
    return plan


def with_settings(plan: Plan, **sections: Any) -> Plan:
    """The same grid and folders with other settings."""
    dumped = plan.settings.model_dump(mode="json")
    return Plan(Settings.parse({**dumped, **{key: {**dumped[key], **value} for key, value in sections.items()}}))


def rewrite(plan: Plan, cell: Cell, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Change a result and give it a right checksum again, as a program would that made it so."""
    path = plan.result_file(cell)
    result = json.loads(path.read_text(encoding="utf-8"))
    result["environment"].pop("checksum")
    change(result)
    write_result(path, result)
    return path


def test_all_results_as_one_table(plan: Plan) -> None:
    frame, stale = collect(plan)
    assert stale == []
    assert len(frame) == len(plan.cells) == 6
    for cell, row in zip(plan.cells, frame.to_dict("records"), strict=True):
        result = json.loads(plan.result_file(cell).read_text(encoding="utf-8"))
        assert {name: row[name] for name in cell.as_dict()} == cell.as_dict()
        for metric in ("accuracy", "ece", "nll"):
            assert row[metric] == result["final"][metric]
        assert row["rounds"] == 12
        assert row["train_seconds"] == pytest.approx(0.5)
        assert row["total_seconds"] == pytest.approx(result["timing"]["total_seconds"])
        assert not row["diverged"]
        assert np.isnan(row["spread"]) or cell.variational


def test_the_table_survives_its_file(plan: Plan, tmp_path: Path) -> None:
    frame, _ = collect(plan)
    frame.to_csv(tmp_path / "results.csv", index=False)
    again = pd.read_csv(tmp_path / "results.csv", keep_default_na=False, na_values=[""])
    assert again["aggregator"].tolist() == frame["aggregator"].tolist()
    np.testing.assert_allclose(again["accuracy"], frame["accuracy"], rtol=1e-14)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "is no valid JSON"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:200]), "is no valid JSON"),
    "binary": (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is no valid JSON"),
    "a list": (lambda path: path.write_text("[1, 2]"), "is no result of a cell"),
    "null": (lambda path: path.write_text("null"), "is no result of a cell"),
    "foreign": (lambda path: path.write_text('{"accuracy": 99.0}'), "is no result of a cell"),
    "foreign fields": (lambda path: path.write_text('{"environment": 3, "cell": []}'), "is no result of a cell"),
    "nested deeply": (lambda path: path.write_text("[" * 100_000), "is no valid JSON"),
    "not a number": (lambda path: path.write_text('{"environment": {"checksum": NaN}}'), "is no valid JSON"),
    "edited": (
        lambda path: path.write_text(path.read_text(encoding="utf-8").replace('"diverged": null', '"diverged": false')),
        "was changed after it was written",
    ),
    "a number edited": (lambda path: path.write_text(path.read_text().replace("8", "9", 1)), "was changed after"),
    "an entry added": (lambda path: path.write_text(path.read_text().replace("{", '{"x": 1,', 1)), "was changed after"),
    "without a checksum": (
        lambda path: path.write_text(path.read_text(encoding="utf-8").replace("checksum", "check")),
        "is no result of a cell",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_and_foreign_results_are_named(plan: Plan, case: str) -> None:
    damage, words = DAMAGE[case]
    cell = plan.cells[3]
    path = plan.result_file(cell)
    whole = path.read_bytes()
    damage(path)
    assert path.read_bytes() != whole
    with pytest.raises(DataError) as caught:
        read_result(path, cell)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "delete it and run snakemake again" in str(caught.value)
    with pytest.raises(DataError) as caught:
        collect(plan)
    assert str(path) in str(caught.value)
    frame, stale = collect(plan, partial=True)
    assert len(frame) == len(plan.cells) - 1
    assert [item.path for item in stale] == [path]


def test_a_missing_result_is_named_and_left_out_of_partial_tables(plan: Plan) -> None:
    path = plan.result_file(plan.cells[0])
    path.unlink()
    with pytest.raises(DataError, match="there is no result") as caught:
        collect(plan)
    assert str(path) in str(caught.value)
    frame, stale = collect(plan, partial=True)
    assert len(frame) == len(plan.cells) - 1
    assert stale == []


def test_the_result_of_another_cell_is_refused(plan: Plan) -> None:
    first, second = plan.cells[:2]
    plan.result_file(first).write_bytes(plan.result_file(second).read_bytes())
    with pytest.raises(DataError, match="holds the result of another cell") as caught:
        collect(plan)
    assert str(plan.result_file(first)) in str(caught.value)


def test_a_whole_result_of_the_wrong_form_is_refused(plan: Plan) -> None:
    def without_accuracy(result: dict[str, Any]) -> None:
        del result["final"]["accuracy"]

    path = rewrite(plan, plan.cells[0], without_accuracy)
    with pytest.raises(DataError, match="accuracy") as caught:
        collect(plan)
    assert str(path) in str(caught.value)


def test_results_of_other_settings_are_stale(plan: Plan) -> None:
    # The population concerns PPA alone.
    _, stale = collect(with_settings(plan, posterior={"ppa_population": 77}))
    assert {item.path for item in stale} == {plan.result_file(cell) for cell in plan.cells if cell.aggregator == "PPA"}
    assert {item.reason for item in stale} == {"other settings (posterior.ppa_population 1000 -> 77)"}
    _, stale = collect(with_settings(plan, training={"learning_rate": 0.5}))
    assert len(stale) == len(plan.cells)


def test_results_of_other_code_are_stale(plan: Plan) -> None:
    path = rewrite(plan, plan.cells[2], lambda result: result.update(fingerprint="0123456789abcdef"))
    _, stale = collect(plan)
    assert [item.path for item in stale] == [path]
    assert "other code" in stale[0].reason


def test_results_of_other_data_are_stale(plan: Plan) -> None:
    path = rewrite(plan, plan.cells[2], lambda result: result["data"].update(dataset="f" * 64))
    _, stale = collect(plan)
    assert [item.path for item in stale] == [path]
    assert "other data" in stale[0].reason


def test_new_data_makes_all_its_results_stale(plan: Plan) -> None:
    summary = arrays.summary_file(plan.data_file("synthetic"))
    described = json.loads(summary.read_text(encoding="utf-8"))
    summary.write_text(json.dumps({**described, "sha256": "e" * 64}), encoding="utf-8")
    _, stale = collect(plan)
    assert len(stale) == len(plan.cells)


def test_stale_results_are_listed_with_what_to_do(plan: Plan) -> None:
    _, stale = collect(with_settings(plan, training={"learning_rate": 0.5}))
    text = describe_stale(stale * 5)
    assert text.startswith("30 result(s)")
    assert text.count("other settings (training.learning_rate 0.01 -> 0.5)") == 20
    assert "and 10 more" in text
    assert "Run snakemake again to train these cells anew" in text
    assert all(str(item.path) in text for item in stale)


def test_diverged_cells_are_rows_without_final_numbers(plan: Plan) -> None:
    cell = plan.cells[0]
    write_result(plan.result_file(cell), fabricated_run.result(plan, cell, diverged=True))
    frame, stale = collect(plan)
    assert stale == []
    assert frame["diverged"].tolist() == [True] + [False] * (len(plan.cells) - 1)
    assert pd.isna(frame["accuracy"][0])
