"""One PDF of several tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bflp.errors import UserError
from bflp.reporting.latex import to_latex
from bflp.reporting.pdf import compile_tables
from bflp.reporting.table import Table


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
