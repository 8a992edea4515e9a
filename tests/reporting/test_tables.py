"""The tables of a grid: the published numbers come out as published, and what is missing is marked."""

from __future__ import annotations

import re

import made_up_grid
import numpy as np
import pandas as pd
import pytest
from published_numbers import COLUMNS, SUMMARIES, as_results, awkward, made_up, markdown_rows, paper, published

from bflp.engine.metrics.registry import METRICS
from bflp.reporting.html import to_html
from bflp.reporting.latex import latex_escape, to_latex
from bflp.reporting.markdown import to_markdown
from bflp.reporting.statistics.analysis import analyse
from bflp.reporting.table import Entry, Table
from bflp.reporting.tables import make_tables, round_time_table
from bflp.reporting.titles import table_titles
from bflp.settings.sections import StatisticsSettings, Tables
from bflp.settings.values import identity


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
    assert tables["datasets"].caption.endswith("samples per client, before any are held out.")


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


# Marks of what differs from the reference row ------------------------------------------------------------------------

MARKS = (
    " †: the 95% t interval of the difference to FEDAVG, paired by seed, excludes 0 (from 3 pairs on; not corrected "
    "for how many numbers are compared)."
)


def marked_rows(differences: dict[str, list[float]], reference: str = "FEDAVG") -> dict[str, str]:
    """The accuracy that a table shows of each row, from its differences to FEDAVG's 70, 75 and 62."""
    methods = dict.fromkeys(("FEDAVG", *differences), ("data", ()))
    plan = made_up_grid.plan(methods, metrics=["accuracy"], reference=reference)
    frame = made_up(plan)
    for name, values in differences.items():
        frame.loc[frame["model"] == name, "accuracy"] = np.add([70, 75, 62], values)
    frame.loc[frame["model"] == "FEDAVG", "accuracy"] = [70, 75, 62]
    table = make_tables(plan, frame.sample(frac=1, random_state=0), {})[0]
    assert MARKS.replace("FEDAVG", reference) in table.caption
    return {row[1]: row[3] for row in markdown_rows(to_markdown(table))[2:]}


def test_marks_by_hand() -> None:
    """t(0.975, 2) = 4.303: of three differences 1 apart the interval is mean ± 4.303 / sqrt(3) = mean ± 2.484."""
    rows = marked_rows({"A": [1.4, 2.4, 3.4], "B": [1.5, 2.5, 3.5], "C": [-2.5, -1.5, -3.5], "D": [-1, 2.5, 6]})
    assert {name for name, text in rows.items() if text.endswith("†")} == {"B", "C"}
    # B and D have the same mean; what tells them apart are the differences of the runs.
    assert rows["B"] == "**71.50** ± 3.46†" and rows["D"] == "**71.50** ± 3.01"
    assert marked_rows({"A": [2.5, 2.6, 2.7]}, "A") == {"FEDAVG": "**69.00** ± 3.79†", "A": "**71.60** ± 3.75"}


def test_marks_are_the_intervals_of_the_statistics() -> None:
    plan = paper(reference="FVBWA EAA", metrics=["nll", "accuracy"])
    frame = as_results()
    # Of the seeds of one row two are missing, and one of another diverged.
    gone = (frame["model"] == "FED") & (frame["dataset"] == "svhn") & (frame["seed"] > 2)
    frame.loc[(frame["aggregator"] == "PPA") & (frame["partition"] == "iid") & (frame["seed"] == 1), "diverged"] = True
    frame = frame[~gone]
    chosen = StatisticsSettings(reference="FVBWA EAA", equivalence={"nll": 0.01, "accuracy": 0.5})
    found = analyse(frame, plan.shown_rows, plan.blocks(), range(5), chosen, METRICS)
    number, tables = 0, make_tables(plan, frame, {})
    for compared in found.compared:
        low, high = compared.by_block.low, compared.by_block.high
        for (row, block), _ in np.ndenumerate(low):
            dataset, partition, clients = found.blocks[block]
            table = tables[["10", "100"].index(clients)]
            rows = table.blocks[["iid", "noniid"].index(partition)][1]
            column = 2 * ["fmnist", "cifar10", "svhn"].index(dataset) + ["nll", "accuracy"].index(compared.name)
            entry = rows[row][1][column]
            assert isinstance(entry, Entry)
            assert entry.differs == (low[row, block] > 0 or high[row, block] < 0)
            number += entry.differs
    assert 50 < number < 250


def test_without_marks_tables_are_what_they_are_but_for_these() -> None:
    """And without is the default."""
    assert "mark_differences" not in identity(Tables())
    off, on = (make_tables(paper(reference=reference), as_results(), SUMMARIES) for reference in (None, "FEDAVG"))
    for before, after in zip(off, on, strict=True):
        for render, dagger in ((to_markdown, "†"), (to_html, "†"), (to_latex, "$^\\dagger$")):
            without, text = render(before), render(after)
            assert dagger not in without
            assert (text.count(dagger) > 20) == after.name.startswith("results")
            rest = text.replace(latex_escape(MARKS) if render is to_latex else MARKS, "").replace(dagger, "")
            if render is to_markdown:
                # Columns are as wide as their cells.
                rest, without = (re.sub(r"(?<=-)-+| +(?=\|)", "", text) for text in (rest, without))
            assert rest == without


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_few_seeds_mark_nothing(seeds: list[int]) -> None:
    plan = paper(seeds=seeds, reference="FEDAVG")
    frame = as_results()
    table = make_tables(plan, frame[frame["seed"].isin(seeds)], {})[0]
    assert to_markdown(table).count("†") == 1 and MARKS in table.caption
    assert to_markdown(make_tables(plan, pd.DataFrame(columns=COLUMNS), {})[0]).count("†") == 1


def test_chosen_metrics_are_the_columns() -> None:
    plan = paper(metrics=["clients_accuracy_worst_decile", "accuracy"])
    table = make_tables(plan, made_up(plan), {})[0]
    assert table.columns == [METRICS["clients_accuracy_worst_decile"].title, "Accuracy (%)"] * 3


def test_nothing_is_bold_of_metrics_that_are_neither_better_high_nor_low() -> None:
    undirected = ["entropy", "expected_entropy", "mutual_information", "temperature", "ensemble_beta"]
    plan = paper(metrics=undirected)
    assert "**" not in to_markdown(make_tables(plan, made_up(plan), {})[0])
    assert [name for name, metric in METRICS.items() if metric.higher_is_better is None] == sorted(
        undirected, key=list(METRICS).index
    )


def test_round_times() -> None:
    plan = paper()
    # Of the settings alone it cannot be told: where the grid has no such cells, others are measured.
    plan.settings.round_time = made_up_grid.SimpleNamespace(
        dataset="cifar10", partition="iid", clients="100", processes=[1, 5], rounds=9
    )
    columns = ["model", "aggregator", "processes", "seconds_per_round", "standard_error", "aggregation_seconds"]
    lines = [("FED", "none", 5, 3.04, 0.1, 0.001), ("FED", "none", 1, 5.42, 0.04, 0.002)]
    lines += [("FVBA", "CF", 1, 6.5, 0.5, 0.25), ("FVBA", "CF", 5, 7.5, 0.5, 0.25)]
    frame = pd.DataFrame(lines, columns=columns).assign(dataset="svhn", partition="noniid", clients="10")
    table = round_time_table(plan, frame)
    rows = markdown_rows(to_markdown(table))[2:]
    assert rows[0] == ["", "FED", "N/A", "5.42 ± 0.04", "3.04 ± 0.10", "1.5"]
    assert rows[1] == ["", "FVBA", "CF", "6.50 ± 0.50", "7.50 ± 0.50", "250.0"]
    assert "SVHN, non-IID, 10 clients; mean ± standard error over 9 rounds" in table.caption
