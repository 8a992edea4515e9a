"""Pages about a run."""

from __future__ import annotations

import html
import re
from typing import Any

import made_up_grid
import pytest
from reporting.test_html import rows

from bflp.grid.cell import Cell
from bflp.reporting.overview import PAGES, make_pages
from bflp.settings.schema import Settings

SETTINGS = Settings.parse(
    {
        "grid": {
            "datasets": ["cifar10"],
            "partitions": ["noniid"],
            "clients": [10],
            "models": ["FED", "FVBA"],
            "aggregators": ["CF"],
            "seeds": [0, 1],
        },
        "partitions": {"noniid": {"strategy": "dirichlet", "alpha": 0.5}},
        "setups": {10: {"fraction": 1.0, "rounds": 12}},
    }
)


@pytest.fixture
def pages() -> dict[str, str]:
    found: list[tuple[Cell, Any]] = [
        (
            Cell("cifar10", "noniid", "10", *row, seed),
            made_up_grid.record(row, seed, diverged=bool(row[1] == "CF" and seed)),
        )
        for row in (("FED", "none"), ("FVBA", "CF"))
        for seed in (0, 1)
    ]
    return make_pages(SETTINGS, found)


def test_pages_stand_alone(pages: dict[str, str]) -> None:
    assert pages.keys() == PAGES.keys()
    assert all(not re.search(r"(src|href)=", page) for page in pages.values())


def test_settings_and_versions(pages: dict[str, str]) -> None:
    # Of the built-in data set, though the config does not say so.
    assert "augment: {crop_padding: 4, flip_probability: 0.5}" in html.unescape(pages["settings"])
    assert "4 of 4 cells: python 3.11, torch 2" in pages["settings"]
    assert "rounds: 12" in pages["settings"]


def test_cells(pages: dict[str, str]) -> None:
    cells = rows(pages["cells"])
    assert [row[:6] for row in cells][:1] == [["CIFAR-10", "non-IID", "10", "FED", "N/A", "0"]]
    final = made_up_grid.record(("FED", "none"), 0).evaluation.final
    assert cells[0][6:10] == [f"{final['accuracy']:.2f}", f"{final['ece']:.2f}", f"{final['nll']:.2f}", ""]
    assert cells[0][10:15] == ["500.0", "500.0", "500.0", "12", "18.0"]
    assert cells[-1][6:10] == ["", "", "", ""] and "round 5" in cells[-1]


def test_timings(pages: dict[str, str]) -> None:
    assert [row[:6] for row in rows(pages["timings"])] == [
        ["CIFAR-10", "10", "FED", "N/A", "2", "500.00 ± 0.00"],
        ["CIFAR-10", "10", "FVBA", "CF", "2", "500.00 ± 0.00"],
    ]
