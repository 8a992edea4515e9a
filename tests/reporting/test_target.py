"""Rounds and megabytes to a target accuracy, from curves that are written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fabricated_run
import pytest
from published_numbers import markdown_rows

from bflp.cli import parser_of
from bflp.cli import tables as command
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.reporting.markdown import to_markdown
from bflp.reporting.target import reached, target_table
from bflp.results.result import Diverged, Result

# Accuracies after rounds 1 to 4 by (model, rule, seed).
CURVES: dict[tuple[Any, ...], list[float]] = {
    ("FED", "none", 0): [50, 86, 84, 90],
    ("FED", "none", 1): [50, 60, 70, 85],
    ("FVBA", "EAA", 0): [85, 86, 87, 88],
    ("FVBA", "EAA", 1): [10, 20, 30, 84.9],
    ("FVBA", "PPA", 0): [10, 20, 30, 40],
    ("FVBA", "PPA", 1): [10, 20, 30, 40],
}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    grid: dict[str, Any] = {"models": ["FED", "FVBA"], "aggregators": ["EAA", "PPA"], "seeds": [0, 1]}
    plan = fabricated_run.plan(tmp_path, rounds=4, top={"tables": {"target_accuracy": 85}}, **grid)
    fabricated_run.make(plan)
    for cell in plan.cells:

        def curve(content: dict[str, Any], cell: Cell = cell) -> None:
            for entry, accuracy in zip(content["rounds"], CURVES[(*cell.row, cell.seed)], strict=True):
                entry["accuracy"] = float(accuracy)
            content["traffic"] = {"up_bytes": [1_000_000] * 4, "down_bytes": [2_500_000, 500_000, 0, 0]}

        fabricated_run.rewrite(plan.paths.result(cell), Result, curve)
    return plan


def results(plan: Plan) -> dict[Cell, Result]:
    return {cell: Result.model_validate(json.loads(plan.paths.result(cell).read_text())) for cell in plan.cells}


def test_the_first_evaluated_round_counts_with_all_rounds_before_it(plan: Plan) -> None:
    found = {(*cell.row, cell.seed): result for cell, result in results(plan).items()}
    assert reached(found["FED", "none", 0], 85) == (2, 5.0)
    assert reached(found["FED", "none", 1], 85) == (4, 7.0)
    assert reached(found["FVBA", "EAA", 0], 85) == (1, 3.5)
    assert reached(found["FVBA", "EAA", 1], 85) is None
    only_last = found["FED", "none", 0].model_copy(update={"rounds": found["FED", "none", 0].rounds[-1:]})
    assert reached(only_last, 85) == (4, 7.0)
    assert reached(only_last.model_copy(update={"traffic": None}), 85) == (4, None)
    diverged = Diverged(round=5, client=None, reason="nan")
    assert reached(found["FED", "none", 0].model_copy(update={"diverged": diverged}), 85) is None


def test_a_row_that_not_all_seeds_take_there_is_marked_and_never_the_best(plan: Plan) -> None:
    table = target_table(plan, results(plan))
    rows = markdown_rows(to_markdown(table))
    assert rows[0] == ["", "Model", "Aggregator", "synthetic Rounds", "synthetic MB"]
    assert rows[2] == ["non-IID, 10 clients", "FED", "N/A", "**3.0** ± 1.0", "**6.0** ± 1.0"]
    assert rows[3] == ["non-IID, 10 clients", "FVBA", "EAA", "1.0 (1/2 seeds)", "3.5 (1/2 seeds)"]
    assert rows[4] == ["non-IID, 10 clients", "FVBA", "PPA", "—", "—"]
    assert "at least 85%" in table.caption
    missing = {cell: result for cell, result in results(plan).items() if cell.seed == 0}
    assert markdown_rows(to_markdown(target_table(plan, missing)))[2][3] == "2.0 (1/2 seeds)"


def test_by_the_command(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    command.run(parser_of("tables").parse_args(["--settings", plan.settings.canonical(), "--partial", "--show"]))
    assert "(results10, target, spread, datasets)" in capsys.readouterr().out
    page = (plan.results / "tables_partial" / "target.md").read_text(encoding="utf-8")
    assert "**6.0** ± 1.0" in page
    for suffix in ("tex", "html"):
        assert (plan.results / "tables_partial" / f"target.{suffix}").is_file()
