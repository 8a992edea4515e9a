"""Which row of a sweep is chosen, by hand; and what results.csv, tables, figures and statistics make of it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import fabricated_run
import pandas as pd
import pytest

from bflp.archive.check import check
from bflp.archive.contents import CHECKSUMS, checksums
from bflp.archive.contents import write as write_archive
from bflp.cli.common import shown_frame
from bflp.errors import UserError
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.provenance.state import finished_of, states
from bflp.provenance.verify import verify
from bflp.reporting.figures import draw, figures_of
from bflp.reporting.figures.loading import load_block
from bflp.reporting.figures.sweep import lines_of
from bflp.reporting.markdown import to_markdown
from bflp.reporting.statistics.analysis import of_plan
from bflp.reporting.table import Entry
from bflp.reporting.tables import make_tables
from bflp.reporting.titles import table_titles
from bflp.results.file import read_evaluation, read_result, write
from bflp.results.frame import Finished, frame
from bflp.results.merged import read_merged, write_merged
from bflp.results.result import Result
from bflp.results.sweeps import choices, marked, shown

RATES = (0.01, 0.1, 1.0)
# Of the rates in each block and rule: seed 0's and seed 1's metric.
Numbers = dict[tuple[str, str], list[tuple[float, float]]]
NLL: Numbers = {
    # The first seed alone would choose 0.01, the second 1.0: the mean is best for 0.1.
    ("iid", "EAA"): [(0.1, 2.0), (0.5, 0.6), (2.0, 0.1)],
    ("iid", "CF"): [(0.3, 0.3), (0.4, 0.4), (0.5, 0.5)],
    ("noniid", "EAA"): [(0.5, 0.5), (0.4, 0.4), (0.3, 0.3)],
    # Of equals the first.
    ("noniid", "CF"): [(0.9, 0.9), (0.2, 0.2), (0.2, 0.2)],
}


def made(
    folder: Path, choose: str | None = "nll", diverged: tuple[str, ...] = (), tables: dict[str, Any] | None = None
) -> Plan:
    """FVBA's learning rates beside FED, with these numbers on held-out samples. diverged: models, with seed 1."""
    sweep: dict[str, Any] = {"training.learning_rate": list(RATES), **({"choose": choose} if choose else {})}
    top = {
        "models": {"LR": {"base": "FVBA", "sweep": sweep}},
        "partitions": {name: {"held_out": 0.2} for name in ("iid", "noniid")},
        "tables": tables or {},
    }
    grid: dict[str, Any] = {"models": ["FED", "LR"], "aggregators": ["EAA", "CF"], "partitions": ["iid", "noniid"]}
    plan = fabricated_run.plan(folder, samples=200, top=top, seeds=[0, 1], **grid)
    fabricated_run.make(plan, diverged=[cell for cell in plan.cells if cell.model in diverged and cell.seed == 1])
    for cell in plan.cells:
        if cell.model.startswith("LR-"):
            value = NLL[cell.partition, cell.aggregator][RATES.index(float(cell.model[3:]))][cell.seed]
            write_held_out(plan, cell, choose or "nll", value)
    return plan


def write_held_out(plan: Plan, cell: Cell, metric: str, value: float) -> None:
    """Another number on held-out samples after the last round; that of the test set is none of it."""
    content = read_result(plan.paths.result(cell), cell).model_dump()
    content["rounds"][-1]["held_out"][metric] = value
    write(plan.paths.result(cell), Result.model_validate(content))


def finished(plan: Plan) -> list[Finished]:
    return finished_of(states(plan))


def tidy(plan: Plan) -> pd.DataFrame:
    return marked(plan, frame(finished(plan)))


def chosen(plan: Plan) -> dict[tuple[str, str], str]:
    found = choices(plan, tidy(plan))
    assert {(key[0], key[2], key[3]) for key in found} <= {("synthetic", "10", "LR")}
    return {(key[1], key[4]): row for key, row in found.items()}


BEST = {("iid", "EAA"): "LR-0.1", ("iid", "CF"): "LR-0.01", ("noniid", "EAA"): "LR-1.0", ("noniid", "CF"): "LR-0.1"}


def test_the_best_mean_over_seeds_of_each_block_and_rule(tmp_path: Path) -> None:
    assert chosen(made(tmp_path)) == BEST


def test_more_accuracy_is_better(tmp_path: Path) -> None:
    assert chosen(made(tmp_path, "accuracy")) == {
        **{("iid", "EAA"): "LR-0.01", ("iid", "CF"): "LR-1.0"},
        **{("noniid", "EAA"): "LR-0.01", ("noniid", "CF"): "LR-0.01"},
    }


def test_what_diverged_is_chosen_only_where_all_did(tmp_path: Path) -> None:
    found = chosen(made(tmp_path / "one", diverged=("LR-0.1",)))
    assert found["iid", "EAA"] == "LR-0.01"  # means 1.05 and 1.05, of equals the first
    assert found["noniid", "CF"] == "LR-1.0"
    every = made(tmp_path / "all", diverged=("LR-0.01", "LR-0.1", "LR-1.0"))
    assert set(chosen(every).values()) == {"LR-0.01"}
    results, *_ = make_tables(every, tidy(every), {})
    assert "diverged (1/2)" in to_markdown(results)


def test_nothing_is_chosen_before_all_have_run(tmp_path: Path) -> None:
    plan = made(tmp_path)
    late = next(cell for cell in plan.cells if cell.row == ("LR-1.0", "EAA") and cell.partition == "iid")
    plan.paths.result(late).unlink()
    assert chosen(plan) == {key: row for key, row in BEST.items() if key != ("iid", "EAA")}
    results, *_ = make_tables(plan, tidy(plan), {})
    rows = {row[0]: [value.seeds for value in row[1] if isinstance(value, Entry)] for row in results.blocks[0][1]}
    assert rows == {("FED", "N/A"): [2] * 3, ("LR", "EAA"): [0] * 3, ("LR", "CF"): [2] * 3}
    found, _ = load_block(plan, *plan.blocks()[0], partial=True)
    assert found.gaps(found.rows) == ["No results yet: LR EAA"]


def test_the_table_of_choices_says_how_many_seeds_a_mean_is_over(tmp_path: Path) -> None:
    plan = made(tmp_path)
    late = next(cell for cell in plan.cells if cell.row == ("LR-1.0", "EAA") and cell.seed == 0)
    plan.paths.result(late).unlink()
    [table] = [table for table in make_tables(plan, tidy(plan), {}) if table.name == "chosen"]
    two, one = (values[1] for names, values in table.blocks[0][1] if names in (("LR-0.1", "EAA"), ("LR-1.0", "EAA")))
    assert isinstance(two, Entry) and isinstance(one, Entry)
    # Of 0.5 and 0.6: deviation 0.1 / sqrt(2), over sqrt(2).
    assert (two.mean, two.standard_error, two.seeds) == (pytest.approx(0.55), pytest.approx(0.05), 2)
    assert (one.mean, one.seeds, one.wanted) == (pytest.approx(0.1), 1, 2)


def test_results_csv_keeps_all_rows_and_marks_the_chosen_ones(tmp_path: Path) -> None:
    plan = made(tmp_path)
    write_merged(plan, finished(plan))
    merged = read_merged(plan)
    assert len(merged) == len(plan.cells) == 2 * 2 * (1 + 3 * 2)
    of_sweep = merged["model"].str.startswith("LR-")
    assert merged["sweep"].fillna("").tolist() == ["LR" if swept else "" for swept in of_sweep]
    marks: dict[tuple[str, str], set[str]] = {}
    for row in merged[of_sweep & (merged["chosen"] == "yes")].itertuples():
        marks.setdefault((str(row.partition), str(row.aggregator)), set()).add(str(row.model))
    assert marks == {key: {row} for key, row in BEST.items()}
    assert merged.loc[of_sweep, "chosen"].value_counts().to_dict() == {"no": 16, "yes": 8}
    assert merged.loc[~of_sweep, "chosen"].isna().all()
    assert verify(plan).wrong == []


@pytest.mark.parametrize("name", ["007", "nan", "true"])
def test_a_sweep_whose_name_looks_like_something_else(tmp_path: Path, name: str) -> None:
    sweep = {"training.learning_rate": [0.01, 0.1], "choose": "nll"}
    top = {"models": {name: {"base": "FVBA", "sweep": sweep}}, "partitions": {"iid": {"held_out": 0.2}}}
    grid: dict[str, Any] = {"partitions": ["iid"], "models": [name], "aggregators": ["EAA"]}
    plan = fabricated_run.plan(tmp_path, samples=100, top=top, seeds=[0, 1], **grid)
    fabricated_run.make(plan)
    write_merged(plan, finished(plan))
    [(_, [(names, values)])] = make_tables(plan, read_merged(plan), {})[0].blocks
    assert names == (name, "EAA")
    assert [value.seeds for value in values if isinstance(value, Entry)] == [2, 2, 2]


def test_tables_and_statistics_have_the_chosen_row_under_its_name(tmp_path: Path) -> None:
    plan = made(tmp_path)
    write_merged(plan, finished(plan))
    merged = read_merged(plan)
    assert sorted(set(shown(merged)["model"])) == ["FED", "LR"]
    tables = {table.name: table for table in make_tables(plan, merged, {})}
    assert list(tables) == list(table_titles(plan)) == ["results10", "spread", "chosen", "datasets"]
    for title, rows in tables["results10"].blocks:
        assert [names for names, _ in rows] == [("FED", "N/A"), ("LR", "EAA"), ("LR", "CF")]
        partition = {"IID": "iid", "non-IID": "noniid"}[title]
        for (_, rule), values in rows[1:]:
            cells = [Cell("synthetic", partition, "10", BEST[partition, rule], rule, seed) for seed in (0, 1)]
            finals = [read_evaluation(plan.paths.evaluation(cell), cell).metric("accuracy") or 0.0 for cell in cells]
            assert isinstance(values[0], Entry)
            assert values[0].mean == pytest.approx(sum(finals) / 2)
    _, rows = tables["chosen"].blocks[0]
    assert [names for names, _ in rows] == [(f"LR-{rate}", rule) for rule in ("EAA", "CF") for rate in RATES]
    held_out = {names: values[1] for names, values in rows}
    assert all(isinstance(entry, Entry) for entry in held_out.values())
    assert [entry.mean for entry in held_out.values() if isinstance(entry, Entry)] == pytest.approx(
        [sum(pair) / 2 for rule in ("EAA", "CF") for pair in NLL["iid", rule]]
    )
    bold = [names for names, entry in held_out.items() if isinstance(entry, Entry) and entry.bold]
    assert bold == [("LR-0.1", "EAA"), ("LR-0.01", "CF")]
    found = of_plan(plan, merged)
    assert found.names() == ["FED", "LR EAA", "LR CF"]
    assert not any(found.missing.values())


def test_tables_of_other_rounds_and_of_a_target_have_it_too(tmp_path: Path) -> None:
    plan = made(tmp_path, tables={"at_round": 5, "target_accuracy": 1})
    write_merged(plan, finished(plan))
    results = {cell: result for cell, result, _ in finished(plan)}
    found, target, *_ = make_tables(plan, shown_frame(plan, partial=False), {}, results)
    for number, title in enumerate(("iid", "noniid")):
        rule = "CF"
        cells = [Cell("synthetic", title, "10", BEST[title, rule], rule, seed) for seed in (0, 1)]
        curves = [[entry.accuracy for entry in results[cell].rounds] for cell in cells]
        _, values = found.blocks[number][1][2]
        assert isinstance(values[0], Entry)
        assert values[0].mean == pytest.approx(sum(curve[4] for curve in curves) / 2)
        (model, rule_title), values = target.blocks[number][1][2]
        firsts = [next(index for index, value in enumerate(curve, 1) if value >= 1) for curve in curves]
        assert (model, rule_title) == ("LR", "CF")
        assert isinstance(values[0], Entry)
        assert (values[0].mean, values[0].seeds) == (sum(firsts) / 2, 2)


def test_figures_show_the_chosen_row_and_the_sweep_all(tmp_path: Path) -> None:
    plan = made(tmp_path)
    assert "sweep" in figures_of(plan)
    block, _ = load_block(plan, "synthetic", "noniid", "10")
    assert block.rows == [("FED", "none"), ("LR", "EAA"), ("LR", "CF")]
    assert block.of(("LR", "EAA")) == block.of(("LR-1.0", "EAA")) != []
    assert block.of(("LR", "CF")) == block.of(("LR-0.1", "CF"))
    lines = lines_of(block)
    assert lines == {
        "training.learning_rate": {
            ("LR", rule): [(rate, (f"LR-{rate}", rule)) for rate in RATES] for rule in ("EAA", "CF")
        }
    }
    figure = draw("sweep", block)
    panel = figure.axes[0]
    assert panel.get_xscale() == "log"
    assert [axes.get_ylabel() for axes in figure.axes] == ["Accuracy (%)", "ECE (%)", "NLL"]
    assert figure.axes[-1].get_xlabel() == "training.learning_rate"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["LR EAA", "LR CF"]
    eaa, cf = (container.lines[0] for container in panel.containers)
    for line, rule in ((eaa, "EAA"), (cf, "CF")):
        finals = [block.final((f"LR-{rate}", rule), "accuracy")[0] for rate in RATES]
        assert (list(line.get_xdata()), list(line.get_ydata())) == (list(RATES), pytest.approx(finals))
    rings = [list(line.get_xdata()) for line in panel.lines if line.get_markersize() == 9]
    assert rings == [[1.0], [0.1]]
    assert draw("learning_curves", block).axes


def test_without_choose_all_rows_are_shown(tmp_path: Path) -> None:
    plan = made(tmp_path, choose=None)
    write_merged(plan, finished(plan))
    merged = read_merged(plan)
    assert merged["chosen"].isna().all()
    pd.testing.assert_frame_equal(shown(merged), merged)
    results, *others = make_tables(plan, merged, {})
    assert [names[0] for names, _ in results.blocks[0][1]] == ["FED", *(f"LR-{rate}" for rate in RATES for _ in "12")]
    assert "chosen" not in [table.name for table in others]
    assert "Ring" not in str(draw("sweep", load_block(plan, *plan.blocks()[0])[0]).legends[0].get_title())


def test_a_grid_without_sweeps_has_no_word_of_them(tmp_path: Path) -> None:
    plan = fabricated_run.plan(tmp_path, 100, partitions=["iid"], models=["FED"], aggregators=[], seeds=[0])
    fabricated_run.make(plan)
    assert "sweep" not in tidy(plan) and "sweep" not in figures_of(plan)
    assert "sweeps" not in json.loads(plan.summary_job()) and "sweeps" not in json.loads(plan.figures_job(()))


@pytest.mark.slow
def test_an_archive_of_it_is_whole_and_its_names_lead_nowhere_else(tmp_path: Path) -> None:
    plan = made(tmp_path / "run")
    path = tmp_path / "grid.zip"
    write_archive(plan, {}, False, path)
    assert check(path).wrong == []
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "unpacked")
    about = tmp_path / "unpacked/archive.json"
    about.write_text(about.read_text(encoding="utf-8").replace("LR-0.01", "LR-/../x"), encoding="utf-8")
    sums = tmp_path / "unpacked" / CHECKSUMS
    sums.unlink()
    files: dict[str, bytes | Path] = {
        file.relative_to(about.parent).as_posix(): file for file in about.parent.rglob("*") if file.is_file()
    }
    sums.write_text(checksums(files), encoding="utf-8")
    with pytest.raises(UserError, match=r"do not describe a grid \(there is no row LR-/\.\./x of a sweep LR"):
        check(about.parent)
