"""All LaTeX tables in one PDF; one clear line where TeX is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fabricated_run
import pytest

from bflp.cli.common import finished_cells
from bflp.reporting.formats import write_table
from bflp.reporting.statistics.analysis import of_plan
from bflp.reporting.statistics.table import statistics_tables
from bflp.reporting.tables import make_tables
from bflp.reporting.titles import table_titles
from bflp.results.frame import frame

SCRIPT = Path(__file__).resolve().parents[2] / "workflow/scripts/run.py"
needs_tex = pytest.mark.skipif(
    shutil.which("pdflatex") is None
    or subprocess.run(["kpsewhich", "multirow.sty"], capture_output=True, check=False).returncode != 0,
    reason="pdflatex with multirow is not installed",
)


@pytest.fixture
def plan(tmp_path):
    setups = {"setups": {100: {"fraction": 1.0, "rounds": 12}}}
    plan = fabricated_run.plan(tmp_path, top=setups, partitions=["iid", "noniid"], clients=[10, 100], seeds=[0, 1])
    fabricated_run.make(plan, diverged=frozenset(cell for cell in plan.cells if cell.aggregator == "PPA"))
    folder = plan.results / "tables"
    for table in make_tables(plan, frame(finished_cells(plan)), {}):
        write_table(table, folder)
        for suffix in ("md", "html"):
            (folder / f"{table.name}.{suffix}").unlink()
    return plan


def run(plan, path=None):
    environment = os.environ | ({"PATH": str(path)} if path else {})
    command = [sys.executable, SCRIPT, "tables-pdf", "--settings", plan.settings.canonical()]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@needs_tex
def test_pdf_holds_all_tables_and_is_the_same_each_time(plan):
    output = plan.results / "tables/tables.pdf"
    contents = set()
    for _ in range(2):
        done = run(plan)
        assert done.returncode == 0, done.stderr
        contents.add(output.read_bytes())
    assert len(contents) == 1
    assert sorted(path.name for path in output.parent.iterdir()) == sorted(
        [f"{name}.tex" for name in table_titles(plan)] + ["tables.pdf"]
    )
    if shutil.which("pdftotext"):
        text = subprocess.run(["pdftotext", output, "-"], capture_output=True, text=True, check=True).stdout
        for number, words in enumerate(("10 clients", "100 clients", "Spread", "Data sets"), start=1):
            assert f"Table {number}: {words}" in text
        assert "diverged (2/2)" in text


@needs_tex
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext is not installed")
def test_pdf_holds_the_statistics_where_these_were_made(plan):
    for table in statistics_tables(of_plan(plan, frame(finished_cells(plan)))):
        write_table(table, plan.results / "tables")
    done = run(plan)
    assert done.returncode == 0, done.stderr
    output = plan.results / "tables/tables.pdf"
    text = subprocess.run(["pdftotext", output, "-"], capture_output=True, text=True, check=True).stdout
    words = " ".join(text.split())
    assert "paired by seed, mean over" in words and "paired by seed, with the" in words


@needs_tex
def test_mistake_in_a_table_is_named(plan):
    (plan.results / "tables/spread.tex").write_text("\\nonsense\n")
    done = run(plan)
    assert done.returncode == 1 and "Undefined control sequence" in done.stderr and "Traceback" not in done.stderr
    (plan.results / "tables/spread.tex").write_text("\\usepackage{x}\\input{nonesuch.sty}\n")
    assert run(plan).returncode == 1
    assert not (plan.results / "tables/tables.pdf").exists()


def test_without_tex_one_line_says_what_to_install(plan, tmp_path):
    done = run(plan, path=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: pdflatex is not installed") and "apt-get install texlive-latex-extra" in line


def test_missing_table_is_named(plan):
    (plan.results / "tables/spread.tex").unlink()
    done = run(plan)
    assert done.returncode == 1
    if shutil.which("pdflatex"):
        assert "spread.tex: run snakemake first" in done.stderr
