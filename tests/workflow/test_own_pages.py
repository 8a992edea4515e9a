"""docs/own-method.md, docs/own-network.md and docs/notebook.md, followed to the letter in a copy of the project."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import follow, python


@pytest.mark.parametrize(
    ("page", "rows", "results"),
    [
        ("own-method.md", ("FEDAVG", "FEDEXP", "FEDEXP-careful"), "results/own-method"),
        ("own-network.md", ("FEDAVG", "FVBWA", "WIDE"), "results/own-network"),
    ],
)
def test_each_row_has_its_own_numbers(page: str, rows: tuple[str, ...], results: str, tmp_path: Path) -> None:
    printed = follow(page, tmp_path)
    table = (tmp_path / results / "tables/results10.md").read_text(encoding="utf-8")
    assert any(table.strip() in text for text in printed)
    found = [[cell.strip(" *") for cell in line.split("|")] for line in table.splitlines()]
    numbers = [next(cells[-4:-1] for cells in found if row in cells) for row in rows]
    assert all(numbers.count(each) == 1 for each in numbers), table
    if page == "own-network.md":
        # The notebook's page goes on from there.
        shown = python("notebook.md", tmp_path)
        assert "fmnist-mini/iid/10/FVBWA/AALV/seed0" in shown and "GroupNorm" in shown
        assert "of each class: [" in shown
        accuracy = float(shown[: shown.index("Sequential")].split()[-1])
        (exact,) = [float(cells[4]) for cells in found if "FVBWA" in cells]
        assert accuracy == pytest.approx(exact / 100, abs=0.05)  # other Monte Carlo samples
