"""Tables in LaTeX: numbers as published, and a compiled page prints every row and column."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import made_up_grid
import pytest
from published_numbers import SUMMARIES, as_results, awkward, expected_rows, made_up, markdown_rows, paper

from bflp.engine.metrics.registry import METRICS
from bflp.reporting.latex import LONGEST, WIDEST, latex_escape, to_latex
from bflp.reporting.markdown import to_markdown
from bflp.reporting.table import Entry, Table
from bflp.reporting.tables import make_tables

needs_tex = pytest.mark.skipif(
    not (shutil.which("pdflatex") and shutil.which("pdftotext")), reason="pdflatex or pdftotext is not installed"
)


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


def parts(table: Table) -> list[list[list[str]]]:
    """The rows of each float, without its two of headers."""
    return [latex_rows(part)[2:] for part in to_latex(table).split("\\begin{table*}")[1:]]


@pytest.mark.parametrize(("clients", "index"), [("10", 0), ("100", 1)])
def test_published_results(clients: str, index: int) -> None:
    text = to_latex(make_tables(paper(), as_results(), SUMMARIES)[index])
    rows = latex_rows(text)
    found = {tuple(row[:3]): row[3:] for row in rows[2:]}
    assert found == expected_rows(clients, "{} $\\pm$ {:.2f}", "\\textbf{{{}}}")
    assert list(found)[:3] == [("IID", "FED", "N/A"), ("IID", "FEDAVG", "N/A"), ("IID", "FVBA", "EAA")]
    assert rows[0][3:] == [f"\\multicolumn{{3}}{{c}}{{{name}}}" for name in ("Fashion-MNIST", "CIFAR-10", "SVHN")]
    assert rows[1][1:] == ["Model", "Aggregator", *["Accuracy (\\%)", "ECE (\\%)", "NLL"] * 3]
    assert text.count("\\begin{table*}") == 1 and "Part" not in text


def test_marks() -> None:
    entries = [Entry(1.5, 0.25, 2, 2, bold=True), Entry(2.0, 0.5, 2, 5), Entry(wanted=5), Entry(wanted=5, diverged=2)]
    text = to_latex(Table("t", "c", ("Row",), [("", 4)], list("abcd"), [("", [(["r"], entries)])]))
    assert "r & \\textbf{1.50} $\\pm$ 0.25 & 2.00 $\\pm$ 0.50$^{2/5}$ & -- & diverged (2/5) \\\\" in text


def test_a_models_name_spans_its_rows_where_they_stand_together() -> None:
    """As in the table of chosen values, in which the rows of a sweep come rule by rule."""
    names = [("V-0.1", "EAA"), ("V-1", "EAA"), ("V-1", "CF"), ("V-0.1", "CF")]
    table = Table("t", "c", ("", "Model", "Rule"), [("", 1)], ["a"], [("IID", [(row, ["1"]) for row in names])])
    lines = to_latex(table).split("\\midrule\n")[1].split("\\bottomrule")[0].splitlines()
    assert [line for line in lines if line != "\\cmidrule{2-4}"] == [
        "\\multirow{4}{*}{IID} & V-0.1 & EAA & 1 \\\\",
        " & \\multirow{2}{*}{V-1} & EAA & 1 \\\\",
        " &  & CF & 1 \\\\",
        " & V-0.1 & CF & 1 \\\\",
    ]


def test_wide_tables_become_several() -> None:
    table = make_tables(awkward(), made_up(awkward()), {})[0]
    text = to_latex(table)
    found = [latex_rows(part) for part in text.split("\\begin{table*}")[1:]]
    assert len(found) == 3  # 7 data sets x 3 metrics, 9 side by side
    assert all(len(row) <= 3 + WIDEST for rows in found for row in rows)
    assert [f"Part {number} of 3" in text for number in (1, 2, 3)] == [True] * 3
    assert len(set(re.findall(r"\\label\{(.*?)\}", text))) == 3
    columns = sum(len(rows[1]) - 3 for rows in found)
    assert columns == len(table.columns) == 21
    markdown = markdown_rows(to_markdown(table))
    assert [cell for rows in found for cell in rows[2][3:]] == [
        cell.replace("**", "\\textbf{", 1).replace("**", "}") for cell in markdown[2][3:]
    ]


def test_long_tables_become_several_between_blocks() -> None:
    plan = paper(partitions=[f"p{number}" for number in range(5)], metrics=["nll"])
    table = make_tables(plan, made_up(plan), {})[0]
    found = parts(table)
    assert [len(rows) for rows in found] == [24, 24, 12]
    assert [row for rows in found for row in rows] == [
        [cell.replace("**", "\\textbf{", 1).replace("**", "}").replace("±", "$\\pm$") for cell in row]
        for row in markdown_rows(to_markdown(table))[2:]
    ]
    assert "Part 3 of 3." in to_latex(table)


def test_a_block_that_is_longer_than_a_page_is_cut_and_named_in_each_part() -> None:
    rules = tuple(f"R{number}" for number in range(40))
    plan = made_up_grid.plan({"FED": ("equal", ()), "FVBA": ("equal", rules)}, partitions=["p", "q"])
    found = parts(make_tables(plan, made_up(plan), {})[0])
    assert [len(rows) for rows in found] == [LONGEST, 41 - LONGEST, LONGEST, 41 - LONGEST]
    assert [row[:3] for row in found[1]] == [["p", "FVBA", rule] for rule in rules[LONGEST - 1 :]]


@pytest.mark.parametrize("text", ["a_b", "50%", "a & b", "#1", "$x$", "{a}", "~^\\", "100 ± 2", "1×28", "—"])
def test_specials_are_escaped(text: str) -> None:
    bare = re.sub(r"\\(text\w+\{\}|[&%$#_{}])|\$\\(pm|times)\$", "", latex_escape(text))
    assert not set(bare) & set("&%$#_{}~^\\±×—")


# Compiled ------------------------------------------------------------------------------------------------------------


def compiled(folder: Path, tables: list[Table], options: str = "") -> str:
    """What a PDF of the tables shows, as text."""
    body = "\\clearpage\n".join(map(to_latex, tables))
    head = f"\\documentclass[{options}]{{article}}\n\\usepackage{{booktabs,multirow,graphicx}}\n\\begin{{document}}\n"
    (folder / "all.tex").write_text(head + body + "\\end{document}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    for complaint in ("Overfull", "Missing character", "Float too large"):
        assert complaint not in done.stdout
    subprocess.run(["pdftotext", "-layout", "all.pdf", "all.txt"], cwd=folder, check=True)
    text = (folder / "all.txt").read_text(encoding="utf-8")
    assert len(re.findall(r"Table \d+:", text)) == body.count("\\begin{table*}")
    return text


@pytest.mark.slow
@needs_tex
def test_everything_is_printed(tmp_path: Path) -> None:
    half = as_results().sample(frac=0.5, random_state=0)
    half.loc[half.index[:9], "diverged"] = True
    short = paper(datasets=["svhn"], seeds=[4], methods={"FED": ("equal", ()), "FEDAVG": ("data", ())})
    many, marks = paper(metrics=list(METRICS)), paper(reference="FED")
    groups = [
        make_tables(paper(), as_results(), SUMMARIES),
        make_tables(awkward(), made_up(awkward()), {}),
        make_tables(paper(), half, {"svhn": SUMMARIES["svhn"]}),
        make_tables(short, made_up(short), SUMMARIES),
        make_tables(many, made_up(many), {}),
        make_tables(marks, half, SUMMARIES),
    ]
    # Several grids in one document, so some labels are there twice, which does no harm here.
    text = compiled(tmp_path, [table for group in groups for table in group])
    # An underscore is drawn as a line, and lines of text are broken anywhere.
    printed = re.sub(r"[\s_]", "", text)
    for expected in ("90.10 ± 0.11", "non-IID", "FEDAVG", "my_data-6.v+6", "My_Rule_2", "very_uneven_-+.0", "(1/5)"):
        assert re.sub(r"[\s_]", "", expected) in printed, expected
    assert "†:the95%tintervalofthedifferencetoFED,pairedbyseed" in printed and text.count("†") > 20
    for expected in ("mean ± standard error over 5 seeds", "100% active per round", "3 × 32 × 32"):
        assert re.sub(r"[\s_]", "", expected) in printed, expected


@pytest.mark.slow
@needs_tex
@pytest.mark.parametrize("options", ["", "12pt", "a4paper,twocolumn"])
@pytest.mark.parametrize("datasets", [1, 3])
def test_no_row_runs_off_the_page(tmp_path: Path, datasets: int, options: str) -> None:
    """Twelve partitions of thirteen rows, in narrow tables, which keep their size, and in wide ones."""
    methods = {**made_up_grid.PAPER, "FEDPROX": ("data", ())}
    plan = made_up_grid.plan(
        methods,
        datasets=["fmnist", "cifar10", "svhn"][:datasets],
        partitions=[f"part{number}" for number in range(12)],
        metrics=["nll"] if datasets == 1 else ["accuracy", "ece", "nll"],
        seeds=[0, 1],
    )
    frame = made_up(plan)
    frame.loc[frame.index[0], "diverged"] = True  # the longest captions
    table = make_tables(plan, frame[frame["model"] != "FEDPROX"], {})[0]
    text = compiled(tmp_path, [table], options)
    values = [row[3] for row in markdown_rows(to_markdown(table))[2:]]
    assert len(values) == 12 * 13
    # Numbers are random with four digits and more, so each is the mark of one row; the others are words.
    for value in values:
        if "±" in value:
            assert value.replace("**", "") in text
    assert text.count("diverged (1/2)") == (1 if datasets == 1 else 3)
    assert len(re.findall(r"FEDPROX", text)) == 12
    assert len(re.findall(r"part\d+", text)) == 12


@needs_tex
def test_many_rules_between_rows_do_not_push_rows_off_the_page(tmp_path: Path) -> None:
    methods = {f"M{number}M": ("equal", ("A", "B")) for number in range(LONGEST // 2)}
    plan = made_up_grid.plan(methods, partitions=["p", "q"], metrics=["nll"], seeds=[0, 1])
    text = compiled(tmp_path, make_tables(plan, made_up(plan), {})[:1], "12pt")
    assert len(re.findall(r"M\d+M", text)) == LONGEST
