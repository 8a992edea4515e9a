"""Tables and statistics after an earlier round, or over the last rounds, against the JSON of the cells."""

from __future__ import annotations

import json
from pathlib import Path

import fabricated_run
import numpy as np
import pandas as pd
import pytest

from bflp.cli import main
from bflp.cli.common import shown_frame
from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import CURVES
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """12 rounds; one cell diverged after 4."""
    plan = fabricated_run.plan(
        tmp_path_factory.mktemp("run"), samples=200, models=["FED", "FVBA"], aggregators=["EAA"], seeds=[0, 1]
    )
    fabricated_run.make(plan, diverged=plan.cells[-1:])
    return plan


def by_hand(plan: Plan, cell: Cell, rounds: list[int], metric: str) -> float:
    entries = json.loads(plan.paths.result(cell).read_text(encoding="utf-8"))["rounds"]
    values = [entry[metric] for entry in entries if entry["round"] in rounds]
    return float("nan") if None in values else float(np.mean(values))


@pytest.mark.parametrize(
    ("chosen", "rounds"),
    [({"at_round": 7}, [7]), ({"average_last": 5}, [8, 9, 10, 11, 12]), ({"average_last": 1}, [12])],
)
def test_numbers_are_those_of_the_chosen_rounds(plan: Plan, chosen: dict[str, int], rounds: list[int]) -> None:
    frame = shown_frame(fabricated_run.changed(plan, tables=chosen), partial=True)
    for (_, row), cell in zip(frame[:-1].iterrows(), plan.cells[:-1], strict=True):
        for metric in CURVES:
            assert row[metric] == pytest.approx(by_hand(plan, cell, rounds, metric), nan_ok=True)
        assert row["ece_bins"] == 20
    # The others are of the final model, and so are all of a cell that diverged later than the round.
    assert frame[[name for name in METRICS if name in frame and name not in CURVES]].isna().all(axis=None)
    assert frame.iloc[-1]["diverged"]
    assert frame.iloc[-1][list(CURVES)].isna().all()


def shown(plan: Plan, verb: str, folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main([verb, "--configfile", str(fabricated_run.config_file(plan, folder / "run.yaml")), *arguments])
    return capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("partial", [[], ["--partial"]])
def test_commands_show_the_chosen_rounds_and_say_so(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str], partial: list[str]
) -> None:
    earlier = fabricated_run.changed(plan, tables={"at_round": 7})
    shown(earlier, "merge", tmp_path, capsys)
    tables = shown(earlier, "tables", tmp_path, capsys, "--show", *partial)
    assert "12 rounds, after round 7 (ECE: 20 bins): mean" in tables
    assert "of the global posterior, after round 7: mean" in tables
    mean = np.mean([by_hand(plan, cell, [7], "accuracy") for cell in plan.cells[:2]])
    assert f"| FED | N/A | **{mean:.2f}**" in " ".join(tables.split())
    assert "diverged (1/2)" in tables
    statistics = shown(earlier, "statistics", tmp_path, capsys, "--show", *partial)
    assert "(numbers: after round 7)." in " ".join(statistics.split())
    over = fabricated_run.changed(plan, tables={"average_last": 5})
    assert "mean over the last 5 rounds (ECE" in shown(over, "tables", tmp_path, capsys, "--show", "--partial")
    assert "rounds, " not in shown(plan, "tables", tmp_path, capsys, "--show", "--partial").split("rounds:")[0]


def test_no_round_of_a_stale_result_is_made_up(plan: Plan) -> None:
    """A result of more rounds than were asked for when it ran has no number there, and counts as missing."""
    longer = fabricated_run.changed(plan, setups={"10": {"rounds": 30}}, tables={"at_round": 20})
    frame = shown_frame(longer, partial=True)
    assert isinstance(frame, pd.DataFrame)
    assert frame[list(CURVES)].isna().all(axis=None)
