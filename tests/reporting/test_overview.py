"""Pages about a run, and tables as HTML."""

from __future__ import annotations

import html
import json
import re

import fabricated_run
import pytest

from bflp.grid.plan import Plan
from bflp.reporting.html import to_html
from bflp.reporting.overview import PAGES, make_pages
from bflp.reporting.tables import Entry, Table
from bflp.settings.schema import Settings


@pytest.fixture
def plan(tmp_path):
    plan = Plan(
        fabricated_run.settings(
            tmp_path, datasets=["cifar10"], models=["FED", "FVBA"], aggregators=["CF"], seeds=[0, 1]
        )
    )
    fabricated_run.make(plan, diverged=frozenset([plan.cells[-1]]))
    return plan


def rows(page):
    body = page.partition("<tbody>")[2]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", body)]


def test_pages(plan):
    results = [(cell, json.loads(plan.result_file(cell).read_text())) for cell in plan.cells]
    pages = make_pages(plan.settings, results)
    assert pages.keys() == PAGES.keys()
    assert all(not re.search(r"(src|href)=", page) for page in pages.values())
    # Of the built-in data set, though the config does not say so.
    assert "augment: {crop_padding: 4, flip_probability: 0.5}" in html.unescape(pages["settings"])
    assert "4 of 4 cells: python 3.11, torch 2" in pages["settings"]
    cells = rows(pages["cells"])
    assert [row[:6] for row in cells][:1] == [["CIFAR-10", "non-IID", "10", "FED", "N/A", "0"]]
    assert cells[-1][6:10] == ["", "", "", ""] and "round 5" in cells[-1]
    assert cells[0][10:15] == ["500.0", "500.0", "500.0", "12", "18.0"]
    assert [row[:6] for row in rows(pages["timings"])] == [
        ["CIFAR-10", "10", "FED", "N/A", "2", "500.00 ± 0.00"],
        ["CIFAR-10", "10", "FVBA", "CF", "2", "500.00 ± 0.00"],
    ]


def test_programs_are_given_what_the_config_says_and_no_more(plan):
    """A data set of one's own under a built-in name keeps that one's augmentation in all programs."""
    again = Settings.parse(json.loads(plan.settings.canonical()))
    assert again.augment("cifar10") == plan.settings.augment("cifar10") is not None


def test_html_table_has_all_kinds_of_entries_and_escapes():
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


def test_html_table_without_blocks_has_no_column_for_them():
    table = Table("t", "c", ("", "Model"), [("", 1)], ["a"], [("", [(("M",), ["7"])])])
    assert rows(to_html(table)) == [["M", "7"]]
