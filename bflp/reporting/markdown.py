"""Tables in Markdown, for the eye."""

from __future__ import annotations

from functools import partial

import tabulate

from bflp.reporting.table import Table, shown


def to_markdown(table: Table) -> str:
    """The table with its caption below."""
    groups = [text for text, width in table.groups for _ in range(width)]
    headers = [f"{group} {column}".strip() for group, column in zip(groups, table.columns, strict=True)]
    body = [
        [*([block] if len(table.labels) == 3 else []), *names, *map(_value, values)]
        for block, rows in table.blocks
        for names, values in rows
    ]
    text = tabulate.tabulate(
        [[_escape(cell) for cell in row] for row in body],
        headers=[_escape(text) for text in [*table.labels, *headers]],
        tablefmt="pipe",
        disable_numparse=True,
    )
    return f"{text}\n\n{table.caption}\n"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_")


_value = partial(shown, escape=str, bold="**{}**", error=" ± {}", seeds=" ({} seeds)")
