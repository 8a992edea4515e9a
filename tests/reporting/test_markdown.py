"""Tables in Markdown."""

from __future__ import annotations

import pytest
from published_numbers import SUMMARIES, as_results, awkward, expected_rows, made_up, markdown_rows, paper

from bflp.reporting.markdown import to_markdown
from bflp.reporting.tables import make_tables


@pytest.mark.parametrize(("clients", "index"), [("10", 0), ("100", 1)])
def test_published_results(clients: str, index: int) -> None:
    rows = markdown_rows(to_markdown(make_tables(paper(), as_results(), SUMMARIES)[index]))
    found = {tuple(row[:3]): row[3:] for row in rows[2:]}
    assert found == expected_rows(clients, "{} ± {:.2f}", "**{}**")
    assert rows[0][3:6] == ["Fashion-MNIST Accuracy (%)", "Fashion-MNIST ECE (%)", "Fashion-MNIST NLL"]


def test_as_many_cells_in_every_row() -> None:
    tables = make_tables(awkward(), made_up(awkward()), {})
    for table in tables:
        rows = markdown_rows(to_markdown(table))
        assert len({len(row) for row in rows}) == 1
        assert len(rows) == 2 + sum(len(block) for _, block in table.blocks)
    assert "my\\_data-0.v+0" in to_markdown(tables[0])
