"""One PDF of several tables."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import made_up_grid
import pytest
from published_numbers import made_up

from bflp.errors import UserError
from bflp.reporting.latex import to_latex
from bflp.reporting.markdown import to_markdown
from bflp.reporting.pdf import compile_tables
from bflp.reporting.table import Table
from bflp.reporting.tables import make_tables


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_a_table_that_the_page_would_cut_is_an_error(tmp_path: Path) -> None:
    source, output = tmp_path / "table.tex", tmp_path / "tables.pdf"
    whole = to_latex(Table("t", "c", ("Row",), [("", 1)], ["a"], [("", [(["r"], ["x"])])]))
    source.write_text(whole, encoding="utf-8")
    compile_tables([source], output)
    assert output.exists()
    source.write_text(whole.replace("\\centering", "\\rule{1cm}{2\\textheight}"), encoding="utf-8")
    with pytest.raises(UserError, match="a table is higher than a page"):
        compile_tables([source], output)


@pytest.mark.skipif(
    not (shutil.which("pdflatex") and shutil.which("pdftotext")), reason="pdflatex or pdftotext is not installed"
)
def test_as_many_numbers_as_in_markdown(tmp_path: Path) -> None:
    """Six partitions of the paper's twelve rows, which no page holds."""
    plan = made_up_grid.plan(partitions=[f"part{number}" for number in range(6)])
    source, output = tmp_path / "table.tex", tmp_path / "tables.pdf"
    table = make_tables(plan, made_up(plan), {})[0]
    source.write_text(to_latex(table), encoding="utf-8")
    compile_tables([source], output)
    text = subprocess.run(["pdftotext", "-layout", output, "-"], capture_output=True, text=True, check=True).stdout
    number = r"(\d+\.\d\d)\s*±\s*(\d+\.\d\d)"
    expected = re.findall(number, to_markdown(table).replace("*", ""))
    assert len(expected) == 6 * 12 * 3
    assert sorted(re.findall(number, text)) == sorted(expected)
