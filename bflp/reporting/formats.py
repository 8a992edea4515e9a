"""The formats in which every table is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bflp.files import write_text
from bflp.reporting.html import to_html
from bflp.reporting.latex import to_latex
from bflp.reporting.markdown import to_markdown
from bflp.reporting.table import Table

FORMATS: dict[str, Callable[[Table], str]] = {"tex": to_latex, "md": to_markdown, "html": to_html}


def write_table(table: Table, folder: Path) -> None:
    """Write `folder`/{name}.{format} in all formats."""
    for suffix, render in FORMATS.items():
        write_text(folder / f"{table.name}.{suffix}", render(table))
