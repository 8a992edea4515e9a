"""The tables of a grid: the published numbers come out as published, and what is missing is marked."""

from __future__ import annotations

import made_up_grid
import numpy as np
import pandas as pd
import pytest
from published_numbers import COLUMNS, SUMMARIES, as_results, awkward, made_up, markdown_rows, paper, published

from bflp.engine.metrics.registry import METRICS
from bflp.reporting.markdown import to_markdown
from bflp.reporting.table import Entry, Table
from bflp.reporting.tables import make_tables, round_time_table
from bflp.reporting.titles import table_titles


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    return {table.name: table for table in make_tables(paper(), as_results(), SUMMARIES)}


def test_published_spread(tables: dict[str, Table]) -> None:
    rows = markdown_rows(to_markdown(tables["spread"]))
    assert rows[0][3:] == [
        f"{clients} clients {name}" for clients in (10, 100) for name in ("Fashion-MNIST", "CIFAR-10", "SVHN")
    ]
    found = {tuple(row[:3]): row[3:] for row in rows[2:]}
    expected: dict[str, list[str]] = {}
    numbers = published("spread")
    for row in pd.concat([numbers[numbers["clients"] == clients] for clients in ("10", "100")]).itertuples():
        number = f"**{row.mean:.2f}**" if row.bold else f"{row.mean:.2f}"
        expected.setdefault(str(row.aggregator), []).append(f"{number} ± {row.error:.2f}")
    assert {rule: found["non-IID", "FVBWA", rule] for rule in expected} == expected
    assert found["IID", "FVBA", "EAA"] == ["—"] * 6  # the paper shows one partition and one model


def test_the_data_sets(tables: dict[str, Table]) -> None:
    rows = markdown_rows(to_markdown(tables["datasets"]))
    assert rows[2] == ["Fashion-MNIST", "1×28×28", "10", "60000", "10000", "6000", "600"]
    assert rows[4] == ["SVHN", "3×32×32", "10", "73257", "26032", "7326", "733"]


def test_the_names_of_the_tables_are_known_beforehand(tables: dict[str, Table]) -> None:
    assert list(table_titles(paper())) == list(tables) == ["results10", "results100", "spread", "datasets"]
    without_posterior = paper(methods={"FED": ("equal", ())}, setups=["100"])
    made = [table.name for table in make_tables(without_posterior, made_up(without_posterior), {})]
    assert list(table_titles(without_posterior)) == made == ["results100", "datasets"]
    assert list(table_titles(awkward())) == [table.name for table in make_tables(awkward(), made_up(awkward()), {})]
    assert table_titles(awkward())["resultsall_of-them+."] == "Results, all_of-them+. (1 client)"


def test_rows_are_the_plans_in_its_order_whatever_the_methods_are() -> None:
    methods = {
        "SCAFFOLD": ("data", ()),
        "PVI": ("data", ()),
        "FVBA": ("equal", ("CF",)),
        "IVON": ("data", ("W2", "RKL")),
    }
    plan = made_up_grid.plan(methods, posteriors=["PVI"])
    results, spread, _ = make_tables(plan, made_up(plan), {})
    rows = [names for names, _ in results.blocks[0][1]]
    assert rows == [("SCAFFOLD", "N/A"), ("PVI", "N/A"), ("FVBA", "CF"), ("IVON", "W2"), ("IVON", "RKL")]
    assert [names for names, _ in spread.blocks[0][1]] == rows[1:]
    assert all(isinstance(value, Entry) and value.seeds == 3 for _, values in spread.blocks[0][1] for value in values)


def test_named_setups_say_how_many_clients_they_have() -> None:
    plan = made_up_grid.plan(setups={"100-half": 100, "10": 10})
    results, *_, spread, datasets = make_tables(plan, made_up(plan), {})
    assert results.name == "results100-half"
    assert results.caption.startswith("100-half (100 clients), 100% active per round, 50 rounds: mean")
    assert [title for title, _ in spread.groups] == ["100-half (100 clients)", "10 clients"]
    assert datasets.columns[4:] == ["100-half (100 clients)", "10 clients"]


def test_missing_cells_and_seeds_are_marked() -> None:
    frame = as_results()
    fed = (frame["dataset"] == "fmnist") & (frame["partition"] == "iid") & (frame["clients"] == "10")
    fed &= frame["model"] == "FED"
    rows = markdown_rows(to_markdown(make_tables(paper(), frame[~fed | (frame["seed"] < 2)], {})[0]))
    assert rows[2][3].endswith("(2/5 seeds)")
    assert "seeds" not in rows[2][6]
    mean = frame[fed & (frame["seed"] < 2)]["accuracy"].mean()
    assert rows[2][3].startswith(f"{mean:.2f} ± ")
    table = make_tables(paper(), frame[~fed], {})[0]
    rows = markdown_rows(to_markdown(table))
    assert rows[2][3:6] == ["—"] * 3
    assert "only n of m seeds" in table.caption
    assert "only n of m seeds" not in make_tables(paper(), frame, {})[0].caption
    # A row that has not run does not hide the best of those that have.
    assert any("**" in row[3] for row in rows[3:14])
    assert make_tables(paper(), frame, {})[-1].blocks[0][1][0][1][0] == Entry()


def test_nothing_has_run_yet() -> None:
    tables = make_tables(paper(), pd.DataFrame(columns=COLUMNS), {})
    values = [row[3:] for row in markdown_rows(to_markdown(tables[0]))[2:]]
    assert values == [["—"] * 9] * 24


def test_diverged_seeds_are_not_averaged_away() -> None:
    frame = as_results()
    chosen = (frame["dataset"] == "svhn") & (frame["aggregator"] == "EAA") & (frame["seed"] == 1)
    frame.loc[chosen, "diverged"] = True
    frame.loc[chosen, list(METRICS)] = np.nan
    table = make_tables(paper(), frame, {})[0]
    rows = {tuple(row[:3]): row[3:] for row in markdown_rows(to_markdown(table))[2:]}
    assert rows["IID", "FVBA", "EAA"][6:] == ["diverged (1/5)"] * 3
    assert "diverged" not in " ".join(rows["IID", "FVBA", "EAA"][:6])
    assert "diverged (n/m)" in table.caption


def test_one_seed_has_no_error() -> None:
    frame = as_results()
    table = make_tables(paper(seeds=[0]), frame[frame["seed"] == 0], {})[0]
    assert "±" not in to_markdown(table)
    assert "nan" not in to_markdown(table)
    assert "one seed" in table.caption


def test_chosen_metrics_are_the_columns() -> None:
    plan = paper(metrics=["clients_accuracy_worst_decile", "accuracy"])
    table = make_tables(plan, made_up(plan), {})[0]
    assert table.columns == [METRICS["clients_accuracy_worst_decile"].title, "Accuracy (%)"] * 3


def test_round_times() -> None:
    plan = paper()
    plan.settings.round_time = made_up_grid.SimpleNamespace(
        dataset="cifar10", partition="iid", clients="100", processes=[1, 5], rounds=9
    )
    columns = ["model", "aggregator", "processes", "seconds_per_round", "standard_error", "aggregation_seconds"]
    lines = [("FED", "none", 5, 3.04, 0.1, 0.001), ("FED", "none", 1, 5.42, 0.04, 0.002)]
    lines += [("FVBA", "CF", 1, 6.5, 0.5, 0.25), ("FVBA", "CF", 5, 7.5, 0.5, 0.25)]
    table = round_time_table(plan, pd.DataFrame(lines, columns=columns))
    rows = markdown_rows(to_markdown(table))[2:]
    assert rows[0] == ["", "FED", "N/A", "5.42 ± 0.04", "3.04 ± 0.10", "1.5"]
    assert rows[1] == ["", "FVBA", "CF", "6.50 ± 0.50", "7.50 ± 0.50", "250.0"]
    assert "CIFAR-10, IID, 100 clients; mean ± standard error over 9 rounds" in table.caption
