"""docs/reproduction.md is what the kept results say."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bflp.errors import DataError
from bflp.paper import reproduction
from bflp.paper import spread_figure as figure
from bflp.paper.spread_without_data import covers, spread_without_data


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of docs/reproduction that a test may change."""
    copy = tmp_path / "reproduction"
    shutil.copytree(reproduction.FOLDER, copy)
    monkeypatch.setattr(reproduction, "FOLDER", copy)
    reproduction.archive.cache_clear()
    yield copy
    reproduction.archive.cache_clear()


def test_page_is_in_step_with_the_kept_results() -> None:
    """Make it anew with: bflp reproduction."""
    assert reproduction.FOLDER.with_suffix(".md").read_text(encoding="utf-8") == reproduction.page()


def test_archive_is_small_enough_for_a_repository() -> None:
    sizes = [file.stat().st_size for file in reproduction.FOLDER.rglob("*") if file.is_file()]
    assert 0 < sum(sizes) < 5e6


def test_kept_cells_were_planned_and_finished() -> None:
    for variant, cell, result in reproduction.kept():
        assert str(cell) in reproduction.PLANNED[variant]
        setup = result.settings["setup"]
        assert len(result.rounds) == setup["rounds"] == (50 if setup["clients"] == 10 else 500)
        enforce = result.settings.get("posterior", {}).get("log_variance", {}).get("enforce")
        assert enforce in (None, "project" if variant == "project" else "clamp")
        if cell.aggregator in ("EAA", "GAA", "PPA"):
            assert result.settings["aggregation"] == ("reference" if variant == "reference" else "exact")


def test_a_cell_that_is_not_kept_is_listed_as_missing(folder: Path) -> None:
    variant, cell, _ = reproduction.kept()[0]
    text = reproduction.page()
    line = f"- {variant}: `{cell}`"
    assert line not in text
    (folder / variant / "cells" / f"{cell}.json").unlink()
    reproduction.archive.cache_clear()
    assert line in reproduction.page()


def test_unknown_placeholder_is_refused(folder: Path) -> None:
    (folder / "template.md").write_text("{{comparison nonsense}}", encoding="utf-8")
    with pytest.raises(DataError, match="comparison nonsense"):
        reproduction.page()


def test_figure_has_a_line_for_each_kept_variational_cell() -> None:
    drawn = figure.draw(reproduction.kept(), ("fmnist", "iid", "10"))
    shown: dict[str, set[str]] = {variant: set() for variant in reproduction.PLANNED}
    for variant, cell, _ in reproduction.kept():
        if str(cell).startswith("fmnist/iid/10/FVBWA/") and cell.seed == 0:
            shown[variant].add(cell.aggregator)
    # The paper's program computes these by their equations.
    shown["exact"] |= shown["reference"] & {"AALV", "CF"}
    assert [axes.get_title() for axes in drawn.axes] == list(shown)
    for axes, rules in zip(drawn.axes, shown.values(), strict=True):
        assert sorted(line.get_label() for line in axes.get_lines()) == sorted(rules)
        assert axes.get_yscale() == "log"


def test_spread_without_data_is_nearly_that_of_real_training() -> None:
    cells = [(cell, result) for _, cell, result in reproduction.kept() if covers(cell)]
    assert {cell.aggregator for cell, _ in cells} == {"EAA", "GAA", "AALV", "CF"}
    for cell, result in cells:
        measured = [entry.spread for entry in result.rounds]
        assert spread_without_data(cell, result.settings) == pytest.approx(
            measured, rel=0.005 if cell.clients == "10" else 0.01
        )
