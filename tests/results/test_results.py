"""Reading results and evaluations: damaged and foreign ones are refused by name, the rest becomes one tidy table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fabricated_run
import numpy as np
import pandas as pd
import pytest

from bflp.datasets import prepared
from bflp.engine.metrics.registry import METRICS, on_demand
from bflp.errors import DataError
from bflp.grid.plan import Plan
from bflp.provenance.state import finished_of, states
from bflp.reporting.markdown import to_markdown
from bflp.reporting.table import MISSING, Entry
from bflp.reporting.tables import make_tables
from bflp.results.file import checksum, read_evaluation, read_result
from bflp.results.frame import Finished, frame, rounds_frame
from bflp.results.merged import read_merged, write_merged

READERS = {"result": read_result, "evaluation": read_evaluation}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A small grid whose 6 cells have results."""
    plan = fabricated_run.plan(
        tmp_path, samples=200, aggregators=["EAA", "PPA"], seeds=[0, 1], models=["FED", "FVBA"], clients=[10]
    )
    fabricated_run.make(plan)
    return plan


def finished(plan: Plan) -> list[Finished]:
    return finished_of(states(plan))


def tidy(plan: Plan) -> pd.DataFrame:
    return frame(finished(plan))


def test_all_results_as_one_table(plan: Plan) -> None:
    found = tidy(plan)
    assert len(found) == len(plan.cells) == 6
    for cell, row in zip(plan.cells, found.to_dict("records"), strict=True):
        result = json.loads(plan.paths.result(cell).read_text(encoding="utf-8"))
        evaluation = json.loads(plan.paths.evaluation(cell).read_text(encoding="utf-8"))
        assert {name: row[name] for name in cell.as_dict()} == cell.as_dict()
        for metric in ("accuracy", "ece", "nll", "brier", "mce"):
            assert row[metric] == evaluation["final"][metric]
        assert row["clients_accuracy_gini"] == evaluation["clients"]["accuracy_gini"]
        assert row["n_clients"] == 10
        assert row["rounds"] == 12
        assert row["train_seconds"] == pytest.approx(0.5)
        assert row["total_seconds"] == pytest.approx(result["timing"]["total_seconds"])
        assert (row["up_megabytes"], row["down_megabytes"]) == (3.0, 5.0)
        assert not row["diverged"]
        assert np.isnan(row["spread"]) == (cell.model == "FED")


def test_the_table_survives_its_file(plan: Plan) -> None:
    found = tidy(plan)
    write_merged(plan, finished(plan))
    pd.testing.assert_frame_equal(read_merged(plan), _read_again(found), check_dtype=False, rtol=1e-14)


def _read_again(found: pd.DataFrame) -> pd.DataFrame:
    """A number that no cell has is a column of None, and one of NaN when it comes back."""
    empty = [name for name in found if found[name].isna().all()]
    return found.astype(dict.fromkeys(empty, float))


def test_all_evaluated_rounds_as_one_table(plan: Plan) -> None:
    write_merged(plan, finished(plan))
    found = read_merged(plan, plan.paths.merged_rounds)
    pd.testing.assert_frame_equal(found, _read_again(rounds_frame(finished(plan))), check_dtype=False, rtol=1e-14)
    assert len(found) == 6 * 12
    for number, cell in enumerate(plan.cells):
        rows = found[12 * number : 12 * (number + 1)]
        result = json.loads(plan.paths.result(cell).read_text(encoding="utf-8"))
        assert rows["round"].tolist() == list(range(1, 13))
        assert rows["nll"].tolist() == pytest.approx([entry["nll"] for entry in result["rounds"]])
        assert set(rows["ece_bins"]) == {20}
        assert rows["megabytes"].tolist() == [8.0 * number for number in range(1, 13)]
    path = plan.paths.merged_rounds
    path.write_text(path.read_text(encoding="utf-8").replace("0.5", "0.6", 1), encoding="utf-8")
    with pytest.raises(DataError, match=r"rounds\.csv was changed after it was merged"):
        read_merged(plan, plan.paths.merged_rounds)
    read_merged(plan)


def test_a_changed_or_foreign_table_is_refused(plan: Plan) -> None:
    with pytest.raises(DataError, match=r"there is no .*results\.csv"):
        read_merged(plan)
    path = write_merged(plan, finished(plan))
    with pytest.raises(DataError, match="of these settings and this code"):
        read_merged(fabricated_run.changed(plan, training={"learning_rate": 0.5}))
    path.write_text(path.read_text(encoding="utf-8").replace("0.5", "0.6", 1), encoding="utf-8")
    with pytest.raises(DataError, match="was changed after it was merged"):
        read_merged(plan)


# Names that a CSV reader might take for numbers, for missing values, or for truth values.
AWKWARD = ["0.1", "1e3", "007", "nan", "None", "true", "1.0", "NA", "null", "inf"]


@pytest.mark.parametrize("kind", ["datasets", "partitions", "clients", "models", "aggregators"])
def test_names_that_look_like_numbers_come_back_from_the_table(tmp_path: Path, kind: str) -> None:
    """Every number of the tables is there: none is missing because a name came back as another."""
    rule = tmp_path / "rule.py"
    rule.write_text("def aggregate(means, log_variances, weights, settings, generator):\n    return 0, 0\n")
    grid: dict[str, Any] = {
        "datasets": ["1e3"],
        "partitions": ["0.1"],
        "clients": ["007"],
        "models": ["nan"],
        "aggregators": ["NA"],
    }
    # A rule's name is a word, and "none" stands for no rule.
    grid[kind] = [name for name in AWKWARD if kind != "aggregators" or (name.isalpha() and name != "None")]
    top = {
        "partitions": {name: {"strategy": "iid"} for name in grid["partitions"]},
        "setups": {
            name: {"fraction": 1.0, "rounds": 3, **({} if name.isdigit() else {"clients": 2})}
            for name in grid["clients"]
        },
        "models": {name: {"posterior": "variational"} for name in grid["models"]},
        "aggregators": {name: {"file": str(rule)} for name in grid["aggregators"]},
    }
    plan = fabricated_run.plan(tmp_path, samples=100, top=top, seeds=[0, 1], **grid)
    fabricated_run.make(plan)
    write_merged(plan, finished(plan))
    again = read_merged(plan)
    for column in ("dataset", "partition", "clients", "model", "aggregator"):
        assert again[column].tolist() == [getattr(cell, column) for cell in plan.cells]
    summaries = {name: prepared.read_summary(plan.paths.data(name)) for name in grid["datasets"]}
    tables = {table.name: table for table in make_tables(plan, again, summaries)}
    assert tables.keys() == {*(f"results{name}" for name in grid["clients"]), "spread", "datasets"}
    for table in tables.values():
        values = [value for _, rows in table.blocks for _, row in rows for value in row]
        assert len(values) >= 3
        assert all(isinstance(value, str) or value.seeds == 2 for value in values), table.name
        assert MISSING not in to_markdown(table).rpartition("\n\n")[0]
    _, rows = tables[f"results{grid['clients'][0]}"].blocks[0]
    first = rows[0][1][0]
    finals = [json.loads(plan.paths.evaluation(cell).read_text(encoding="utf-8"))["final"] for cell in plan.cells[:2]]
    assert isinstance(first, Entry)
    assert first.mean == pytest.approx((finals[0]["accuracy"] + finals[1]["accuracy"]) / 2)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "is not valid JSON"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:200]), "is not valid JSON"),
    "binary": (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is not valid JSON"),
    "a list": (lambda path: path.write_text("[1, 2]"), "is not the {kind} of a cell"),
    "null": (lambda path: path.write_text("null"), "is not the {kind} of a cell"),
    "foreign": (lambda path: path.write_text('{"accuracy": 99.0}'), "is not the {kind} of a cell"),
    "foreign fields": (
        lambda path: path.write_text('{"environment": 3, "cell": []}'),
        "is not the {kind} of a cell",
    ),
    "nested deeply": (lambda path: path.write_text("[" * 100_000), "is not valid JSON"),
    "not a number": (lambda path: path.write_text('{"environment": {"checksum": NaN}}'), "is not valid JSON"),
    "infinite": (lambda path: path.write_text('{"environment": {"checksum": 1}, "x": Infinity}'), "is not valid JSON"),
    "too many digits": (lambda path: path.write_text("9" * 5000), "is not valid JSON"),
    "a checksum of nothing": (lambda path: path.write_text('{"environment": {"checksum": 5}}'), "was changed after"),
    "edited": (lambda path: path.write_text(path.read_text().replace(": null", ": false", 1)), "was changed after"),
    "a number edited": (lambda path: path.write_text(path.read_text().replace("8", "9", 1)), "was changed after"),
    "an entry added": (lambda path: path.write_text(path.read_text().replace("{", '{"x": 1,', 1)), "was changed after"),
    "without a checksum": (
        lambda path: path.write_text(path.read_text().replace("checksum", "check")),
        "is not the {kind} of a cell",
    ),
}


# An evaluation is no output of Snakemake's, which does not miss it.
ADVICE = {"result": "delete it and run snakemake again", "evaluation": "run bflp evaluate"}


@pytest.mark.parametrize("kind", ["result", "evaluation"])
@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_and_foreign_files_are_named(plan: Plan, case: str, kind: str) -> None:
    damage, words = DAMAGE[case]
    cell = plan.cells[3]
    path = getattr(plan.paths, kind)(cell)
    whole = path.read_bytes()
    damage(path)
    assert path.read_bytes() != whole
    with pytest.raises(DataError) as caught:
        READERS[kind](path, cell)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    assert words.format(kind=kind) in message
    assert message.endswith(ADVICE[kind])


@pytest.mark.parametrize("kind", ["result", "evaluation"])
def test_the_file_of_another_cell_is_refused(plan: Plan, kind: str) -> None:
    first, second = (getattr(plan.paths, kind)(cell) for cell in plan.cells[:2])
    first.write_bytes(second.read_bytes())
    with pytest.raises(DataError, match=f"holds the {kind} of another cell") as caught:
        READERS[kind](first, plan.cells[0])
    assert str(first) in str(caught.value)


def put(*place: Any) -> Callable[[dict[str, Any]], None]:
    """Set what stands at a place, named by its keys, to the last argument: a value, or a function of what is there."""
    *path, last, to = place

    def change(content: dict[str, Any]) -> None:
        inner: Any = content
        for key in path:
            inner = inner[key]
        inner[last] = to(inner[last]) if callable(to) else to

    return change


def without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.pop(key)


DIVERGED = {"client": None, "reason": ""}
# A change, and what the refusal names. The checksum is right: what is wrong is the content.
WRONG: dict[str, list[tuple[Callable[[dict[str, Any]], None], str]]] = {
    "result": [
        *((without(key), f"{key}: is missing") for key in ("settings", "data", "model_sha256", "rounds", "timing")),
        (put("final", {}), "final: unknown field"),
        (put("model_sha256", "abc"), "model_sha256"),
        (put("fingerprint", 5), "fingerprint"),
        (put("data", "partition", None), "data.partition"),
        (put("environment", "processes", 0), "environment.processes"),
        (put("environment", "resumed_at", [13]), "resumed_at: exceeds round 12"),
        (put("settings", {}), "settings.setup.rounds: must be a positive whole number"),
        (put("settings", "evaluation", "every", 5), "rounds: must be [5, 10, 12]"),
        (put("rounds", lambda rounds: rounds[:-1]), "rounds: must be [1, 2, ..., 12]"),
        (put("rounds", 2, {"round": 3, "ece": 1.0, "nll": 1.0, "spread": None}), "rounds.2.accuracy: is missing"),
        (put("rounds", 2, "accuracy", 101.0), "rounds.2.accuracy"),
        (put("rounds", 0, "accuracy", "50"), "rounds.0.accuracy"),
        (put("rounds", 0, "nll", -1.0), "rounds.0.nll"),
        (put("rounds", 0, "spread", 1.0), "spread: methods with a posterior"),
        (put("timing", "train_seconds", lambda values: values[1:]), "timing.train_seconds: must have 12 entries"),
        (put("timing", "total_seconds", -1.0), "timing.total_seconds"),
        (put("traffic", "up_bytes", lambda values: values[1:]), "traffic.up_bytes: must have 12 entries"),
        (put("diverged", {"round": 13, **DIVERGED}), "diverged.round: must be at most 12"),
        (put("diverged", {"round": 3, **DIVERGED}), "rounds: must be [1, 2]"),
        (put("cell", "model", "FVBA"), "holds the result of another cell"),
    ],
    "evaluation": [
        *((without(key), f"{key}: is missing") for key in ("settings", "data", "model_sha256", "final", "clients")),
        (put("more", 1), "more: unknown field"),
        (put("data", "out_of_distribution", "abc"), "data.out_of_distribution"),
        (put("final", None), "final, reliability, clients: all or none"),
        (put("final", "accuracy", lambda accuracy: accuracy - 1), "reliability: is of another accuracy"),
        (put("final", "ood_auroc", "0.5"), "final.ood_auroc"),
        (put("reliability", "counts", lambda counts: counts[1:]), "reliability: must have 20 bins"),
        (put("reliability", "counts", lambda counts: [0] * len(counts)), "reliability.correct: exceeds counts"),
        (put("reliability", "correct", lambda correct: [0] * len(correct)), "is of another accuracy"),
        (put("confusion", [[-1]]), "confusion.0.0"),
        (put("clients", "nll", 1, "1"), "clients.nll"),
        (put("cell", "model", "FVBA"), "holds the evaluation of another cell"),
    ],
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_whole_file_of_the_wrong_form_is_refused(plan: Plan, kind: str) -> None:
    cell = plan.cells[0]
    path = getattr(plan.paths, kind)(cell)
    whole = path.read_text(encoding="utf-8")
    for change, words in WRONG[kind]:
        content = json.loads(whole)
        change(content)
        content["environment"]["checksum"] = checksum(content)
        path.write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(DataError) as caught:
            READERS[kind](path, cell)
        message = str(caught.value)
        assert message.startswith(f"{path} ") and message.endswith(f": {ADVICE[kind]}"), words
        assert words in message and "\n" not in message, message


def test_diverged_cells_are_rows_without_final_numbers(plan: Plan) -> None:
    cell = plan.cells[0]
    fabricated_run.make(plan, wanted=lambda other: other == cell, diverged=[cell])
    found = tidy(plan)
    assert found["diverged"].tolist() == [True] + [False] * (len(plan.cells) - 1)
    assert found.loc[0, [name for name in METRICS if name in found]].isna().all()
    # What is measured on demand has columns only where it was asked for.
    assert set(METRICS) - set(found.columns) == set(on_demand())
    assert found.loc[0, "rounds"] == 4
    assert not found.loc[1:, ["accuracy", "ece", "nll"]].isna().any().any()
