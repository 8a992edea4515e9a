"""Tables as HTML pages."""

from __future__ import annotations

import re

from bflp.reporting.html import to_html
from bflp.reporting.table import Entry, Table


def rows(page: str) -> list[list[str]]:
    body = page.partition("<tbody>")[2]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", body)]


def test_table_has_all_kinds_of_entries_and_escapes() -> None:
    values = [
        Entry(1.5, 0.25, 2, 2, bold=True),
        Entry(2.0, seeds=1, wanted=2),
        Entry(wanted=2),
        Entry(diverged=1, wanted=2),
    ]
    table = Table(
        "t", "a < b", ("", "Model", "Rule"), [("X & Y", 4)], list("abcd"), [("IID", [(("M", "R<1>"), values)])]
    )
    page = to_html(table)
    assert rows(page) == [
        ["IID", "M", "R&lt;1&gt;", "<b>1.50</b> ± 0.25", "2.00 <small>(1/2 seeds)</small>", "—", "diverged (1/2)"]
    ]
    assert "a &lt; b" in page and "X &amp; Y" in page
    assert re.findall(r'data-value="([^"]*)"', page) == ["1.5", "2.0", "", ""]


def test_table_without_blocks_has_no_column_for_them() -> None:
    table = Table("t", "c", ("", "Model"), [("", 1)], ["a"], [("", [(("M",), ["7"])])])
    assert rows(to_html(table)) == [["M", "7"]]
