"""Tables: the published numbers come out as published, what is missing is marked, and LaTeX prints all of it."""

from __future__ import annotations

import copy
import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from bflp.grid.plan import Plan
from bflp.reporting.tables import (
    RESULT_METRICS,
    WIDEST,
    Entry,
    Table,
    latex_escape,
    make_tables,
    table_names,
    to_latex,
    to_markdown,
)
from bflp.settings.schema import Settings

PROJECT = Path(__file__).resolve().parents[2]
PUBLISHED = PROJECT / "bflp" / "paper" / "published"
PAPER: dict[str, Any] = yaml.safe_load((PROJECT / "config.yaml").read_text(encoding="utf-8"))
COLUMNS = ["dataset", "partition", "clients", "model", "aggregator", "seed", "diverged", *RESULT_METRICS, "spread"]
SUMMARIES = {
    "fmnist": {"image_shape": [1, 28, 28], "labels": 10, "train_size": 60000, "test_size": 10000},
    "cifar10": {"image_shape": [3, 32, 32], "labels": 10, "train_size": 50000, "test_size": 10000},
    "svhn": {"image_shape": [3, 32, 32], "labels": 10, "train_size": 73257, "test_size": 26032},
}
# Five numbers of mean 0 and sample standard deviation 1.
FIVE = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) / np.sqrt(2.5)


def published(name: str) -> pd.DataFrame:
    return pd.read_csv(PUBLISHED / name, keep_default_na=False)


def as_results() -> pd.DataFrame:
    """Results of five seeds that have the published means and standard errors."""
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    for number in [
        *published("results.csv").itertuples(),
        *published("spread.csv").assign(metric="spread").itertuples(),
    ]:
        for seed, deviation in enumerate(FIVE):
            key = (number.dataset, number.partition, number.clients, number.model, _rule(number.aggregator), seed)
            value = number.mean + deviation * number.standard_error * math.sqrt(5)
            rows.setdefault(key, {})[number.metric] = value
    frame = pd.DataFrame([{**dict(zip(COLUMNS, key, strict=False)), **values} for key, values in rows.items()])
    return frame.assign(diverged=False).reindex(columns=COLUMNS)


def _rule(name: str) -> str:
    return "none" if name == "N/A" else name


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    return {table.name: table for table in make_tables(Settings.parse(PAPER), as_results(), SUMMARIES)}


def made_up(settings: Settings, seed: int = 0) -> pd.DataFrame:
    """Random results of all cells of a grid."""
    generator = np.random.default_rng(seed)
    rows = [
        {
            **cell.as_dict(),
            "diverged": False,
            **{name: generator.uniform(0, 99) for name in (*RESULT_METRICS, "spread")},
        }
        for cell in Plan(settings).cells
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def awkward_settings(tmp_path: Path, count: int = 7, seeds: Sequence[int] = (3,)) -> Settings:
    """Many data sets, one seed, and names with all characters that names may have."""
    rule = tmp_path / "my_rule.py"
    rule.write_text("", encoding="utf-8")
    names = [f"my_data-{number}.v+{number}" for number in range(count)]
    return Settings.parse(
        {
            "grid": {
                "datasets": names,
                "partitions": ["iid", "very_uneven_-+.0"],
                "clients": [2, 1000],
                "models": ["FED", "FVBA"],
                "aggregators": ["EAA", "My_Rule_2"],
                "seeds": list(seeds),
            },
            "datasets": {name: {"source": "x.npz"} for name in names},
            "partitions": {"iid": {"strategy": "iid"}, "very_uneven_-+.0": {"strategy": "quantity", "alpha": 0.1}},
            "setups": {2: {"fraction": 1, "rounds": 1}, 1000: {"fraction": 0.055, "rounds": 1}},
            "aggregator_files": {"My_Rule_2": str(rule)},
        }
    )


# The published numbers -----------------------------------------------------------------------------------------------


def latex_rows(text: str) -> list[list[str]]:
    """The rows of a LaTeX table, block and model filled in where they span."""
    rows: list[list[str]] = []
    above = ["", ""]
    for line in text.splitlines():
        if not line.endswith("\\\\") or " & " not in line:
            continue
        cells = [re.sub(r"^\\multirow\{\d+\}\{\*\}\{(.*)\}$", r"\1", cell.strip()) for cell in line[:-2].split(" & ")]
        above = [cells[0] or above[0], cells[1] or above[1]]
        rows.append([*above, *cells[2:]])
    return rows


def markdown_rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def expected_rows(clients: int, pattern: str, bold: str) -> dict[tuple[str, ...], list[str]]:
    """(partition, model, rule) -> the nine published entries of the row, in a format's words."""
    numbers = {
        (row.dataset, row.partition, row.clients, row.model, row.aggregator, row.metric): row
        for row in published("results.csv").itertuples()
    }
    result: dict[tuple[str, ...], list[str]] = {}
    titles = {"iid": "IID", "noniid": "non-IID"}
    for _, partition, count, model, rule, _ in numbers:
        if count == clients:
            row = [
                numbers[dataset, partition, clients, model, rule, metric]
                for dataset in ("fmnist", "cifar10", "svhn")
                for metric in ("accuracy", "ece", "nll")
            ]
            result[titles[partition], model, rule] = [
                pattern.format(
                    bold.format(f"{entry.mean:.2f}") if entry.bold else f"{entry.mean:.2f}", entry.standard_error
                )
                for entry in row
            ]
    assert len(result) == 24
    return result


@pytest.mark.parametrize("clients", [10, 100])
def test_published_results_in_latex(tables: dict[str, Table], clients: int) -> None:
    rows = latex_rows(to_latex(tables[f"results{clients}"]))
    found = {tuple(row[:3]): row[3:] for row in rows[2:]}
    assert found == expected_rows(clients, "{} $\\pm$ {:.2f}", "\\textbf{{{}}}")
    assert list(found)[:3] == [("IID", "FED", "N/A"), ("IID", "FEDAVG", "N/A"), ("IID", "FVBA", "EAA")]
    assert rows[0][3:] == [f"\\multicolumn{{3}}{{c}}{{{name}}}" for name in ("Fashion-MNIST", "CIFAR-10", "SVHN")]
    assert rows[1][1:] == ["Model", "Aggregator", *["Accuracy (\\%)", "ECE (\\%)", "NLL"] * 3]


@pytest.mark.parametrize("clients", [10, 100])
def test_published_results_in_markdown(tables: dict[str, Table], clients: int) -> None:
    rows = markdown_rows(to_markdown(tables[f"results{clients}"]))
    found = {tuple(row[:3]): row[3:] for row in rows[2:]}
    assert found == expected_rows(clients, "{} ± {:.2f}", "**{}**")
    assert rows[0][3:6] == ["Fashion-MNIST Accuracy (%)", "Fashion-MNIST ECE (%)", "Fashion-MNIST NLL"]


def test_published_spread(tables: dict[str, Table]) -> None:
    rows = markdown_rows(to_markdown(tables["spread"]))
    assert rows[0][3:] == [
        f"{clients} clients {name}" for clients in (10, 100) for name in ("Fashion-MNIST", "CIFAR-10", "SVHN")
    ]
    found = {tuple(row[:3]): row[3:] for row in rows[2:]}
    expected: dict[str, list[str]] = {}
    for row in published("spread.csv").sort_values("clients", kind="stable").itertuples():
        number = f"**{row.mean:.2f}**" if row.bold else f"{row.mean:.2f}"
        expected.setdefault(row.aggregator, []).append(f"{number} ± {row.standard_error:.2f}")
    assert {rule: found["non-IID", "FVBWA", rule] for rule in expected} == expected
    assert found["IID", "FVBA", "EAA"] == ["—"] * 6  # the paper shows one partition and one model


def test_the_data_sets(tables: dict[str, Table]) -> None:
    rows = markdown_rows(to_markdown(tables["datasets"]))
    assert rows[2] == ["Fashion-MNIST", "1×28×28", "10", "60000", "10000", "6000", "600"]
    assert rows[4] == ["SVHN", "3×32×32", "10", "73257", "26032", "7326", "733"]


# What is shown -------------------------------------------------------------------------------------------------------


def test_the_names_of_the_tables_are_known_beforehand(tmp_path: Path, tables: dict[str, Table]) -> None:
    assert table_names(Settings.parse(PAPER)) == list(tables) == ["results10", "results100", "spread", "datasets"]
    config = copy.deepcopy(PAPER)
    config["grid"] |= {"models": ["FED"], "aggregators": [], "clients": [100]}
    settings = Settings.parse(config)
    made = [table.name for table in make_tables(settings, made_up(settings), {})]
    assert table_names(settings) == made == ["results100", "datasets"]
    settings = awkward_settings(tmp_path)
    assert table_names(settings) == [table.name for table in make_tables(settings, made_up(settings), {})]


def test_missing_cells_and_seeds_are_marked() -> None:
    settings = Settings.parse(PAPER)
    frame = as_results()
    fed = (frame["dataset"] == "fmnist") & (frame["partition"] == "iid") & (frame["clients"] == 10)
    fed &= frame["model"] == "FED"
    some = frame[~fed | (frame["seed"] < 2)]
    rows = markdown_rows(to_markdown(make_tables(settings, some, {})[0]))
    assert rows[2][3].endswith("(2/5 seeds)")
    assert "seeds" not in rows[2][6]
    mean = frame[fed & (frame["seed"] < 2)]["accuracy"].mean()
    assert rows[2][3].startswith(f"{mean:.2f} ± ")
    table = make_tables(settings, frame[~fed], {})[0]
    rows = markdown_rows(to_markdown(table))
    assert rows[2][3:6] == ["—"] * 3
    assert "only n of m seeds" in table.caption
    assert "only n of m seeds" not in make_tables(settings, frame, {})[0].caption
    # A row that has not run is no reason to miss the best of those that have.
    assert any("**" in row[3] for row in rows[3:14])
    assert make_tables(settings, frame, {})[-1].blocks[0][1][0][1][0] == Entry()


def test_nothing_has_run_yet() -> None:
    settings = Settings.parse(PAPER)
    tables = make_tables(settings, pd.DataFrame(columns=COLUMNS), {})
    values = [row[3:] for row in markdown_rows(to_markdown(tables[0]))[2:]]
    assert values == [["—"] * 9] * 24
    assert "\\textbf" not in to_latex(tables[0])


def test_diverged_seeds_are_not_averaged_away() -> None:
    settings = Settings.parse(PAPER)
    frame = as_results()
    chosen = (frame["dataset"] == "svhn") & (frame["aggregator"] == "EAA") & (frame["seed"] == 1)
    frame.loc[chosen, "diverged"] = True
    frame.loc[chosen, list(RESULT_METRICS)] = np.nan
    table = make_tables(settings, frame, {})[0]
    rows = {tuple(row[:3]): row[3:] for row in markdown_rows(to_markdown(table))[2:]}
    assert rows["IID", "FVBA", "EAA"][6:] == ["diverged (1/5)"] * 3
    assert "diverged" not in " ".join(rows["IID", "FVBA", "EAA"][:6])
    assert "diverged" in to_latex(table)
    assert "diverged (n/m)" in table.caption


def test_one_seed_has_no_error() -> None:
    config = copy.deepcopy(PAPER)
    config["grid"]["seeds"] = [0]
    settings = Settings.parse(config)
    frame = as_results()
    table = make_tables(settings, frame[frame["seed"] == 0], {})[0]
    assert "±" not in to_markdown(table)
    assert "nan" not in to_markdown(table) + to_latex(table)
    assert "one seed" in table.caption


def test_chosen_metrics_are_the_columns() -> None:
    config = copy.deepcopy(PAPER)
    config["tables"] = {"metrics": ["brier", "accuracy"]}
    settings = Settings.parse(config)
    rows = markdown_rows(to_markdown(make_tables(settings, made_up(settings), {})[0]))
    assert rows[0][3:5] == ["Fashion-MNIST Brier", "Fashion-MNIST Accuracy (%)"]
    assert len(rows[0]) == 3 + 2 * 3


def test_markdown_has_as_many_cells_in_every_row(tmp_path: Path) -> None:
    settings = awkward_settings(tmp_path)
    for table in make_tables(settings, made_up(settings), {}):
        rows = markdown_rows(to_markdown(table))
        assert len({len(row) for row in rows}) == 1
        assert len(rows) == 2 + sum(len(block) for _, block in table.blocks)
    assert "my\\_data-0.v+0" in to_markdown(make_tables(settings, made_up(settings), {})[0])


def test_wide_tables_become_several(tmp_path: Path) -> None:
    settings = awkward_settings(tmp_path)
    table = make_tables(settings, made_up(settings), {})[0]
    text = to_latex(table)
    parts = text.split("\\begin{table*}")[1:]
    assert len(parts) == 3  # 7 data sets x 3 metrics, 9 side by side
    found = [latex_rows(part) for part in parts]
    assert all(len(row) <= 3 + WIDEST for rows in found for row in rows)
    whole = latex_rows(to_latex(table).replace("\\end{table*}", ""))
    assert len(whole) == 3 * len(found[0])
    assert [f"Part {number} of 3" in part for number, part in enumerate(parts, start=1)] == [True] * 3
    assert len(set(re.findall(r"\\label\{(.*?)\}", text))) == 3
    columns = sum(len(rows[1]) - 3 for rows in found)
    assert columns == len(table.columns) == 21
    markdown = markdown_rows(to_markdown(table))
    assert [cell for rows in found for cell in rows[2][3:]] == [
        cell.replace("**", "\\textbf{", 1).replace("**", "}") for cell in markdown[2][3:]
    ]


@pytest.mark.parametrize("text", ["a_b", "50%", "a & b", "#1", "$x$", "{a}", "~^\\", "100 ± 2", "1×28"])
def test_latex_specials_are_escaped(text: str) -> None:
    escaped = latex_escape(text)
    bare = re.sub(r"\\(text\w+\{\}|[&%$#_{}])|\$\\(pm|times)\$", "", escaped)
    assert not set(bare) & set("&%$#_{}~^\\±×")


# Compiled ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    not (shutil.which("pdflatex") and shutil.which("pdftotext")), reason="pdflatex or pdftotext is not installed"
)
def test_latex_compiles_and_prints_everything(tmp_path: Path, tables: dict[str, Table]) -> None:
    awkward = awkward_settings(tmp_path)
    half = as_results().sample(frac=0.5, random_state=0)
    half.loc[half.index[:9], "diverged"] = True
    config = copy.deepcopy(PAPER)
    config["grid"] |= {"seeds": [4], "datasets": ["svhn"], "models": ["FED", "FEDAVG"]}
    short = Settings.parse(config)
    many = copy.deepcopy(PAPER)
    many["tables"] = {"metrics": list(RESULT_METRICS)}
    groups = [
        list(tables.values()),
        make_tables(awkward, made_up(awkward), {}),
        make_tables(Settings.parse(PAPER), half, {"svhn": SUMMARIES["svhn"]}),
        make_tables(short, made_up(short), SUMMARIES),
        make_tables(Settings.parse(many), made_up(Settings.parse(many)), {}),
    ]
    body = "\\clearpage\n".join(to_latex(table) for group in groups for table in group)
    # Several grids in one document: their labels are the same, which is no matter of the tables.
    head = "\\documentclass{article}\n\\usepackage{booktabs,multirow,graphicx}\n\\begin{document}\n"
    (tmp_path / "all.tex").write_text(head + body + "\\end{document}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "Missing character" not in done.stdout
    subprocess.run(["pdftotext", "-layout", "all.pdf", "all.txt"], cwd=tmp_path, check=True)
    text = (tmp_path / "all.txt").read_text(encoding="utf-8")
    assert len(re.findall(r"Table \d+:", text)) == body.count("\\begin{table*}")
    # An underscore is drawn as a line, and lines of text are broken anywhere.
    printed = re.sub(r"[\s_]", "", text)
    for expected in ("90.10 ± 0.11", "non-IID", "FEDAVG", "my_data-6.v+6", "My_Rule_2", "very_uneven_-+.0", "(1/5)"):
        assert re.sub(r"[\s_]", "", expected) in printed, expected
    for expected in ("mean ± standard error over 5 seeds", "5.5% active per round", "3 × 32 × 32"):
        assert re.sub(r"[\s_]", "", expected) in printed, expected
