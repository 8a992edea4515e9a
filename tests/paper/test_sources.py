"""Published tables as data: each source is whole, its config runs it, and what differs from its set-up is named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bflp.errors import DataError
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.paper import sources as module
from bflp.paper.sources import CONFIGS, KEYS, PUBLISHED, Source, sources
from bflp.settings.schema import load

ROOT = Path(__file__).resolve().parents[2]


def cells(source: Source) -> list[Cell]:
    return [Cell.parse("/".join([*names, "seed0"])) for names in source.numbers[KEYS].drop_duplicates().to_numpy()]


def test_every_folder_and_every_config_is_a_source() -> None:
    assert {file.name for file in PUBLISHED.iterdir() if file.is_dir()} == set(sources())
    assert {file.stem for file in CONFIGS.iterdir()} == set(sources())


@pytest.mark.parametrize("key", ["bflp", "flower", "niid_bench"])
def test_config_describes_every_published_row_and_runs_it_as_described(key: str) -> None:
    """Alone, as comparisons read it, and over the project's config, as it is run."""
    source, run = sources()[key], Plan(load([ROOT / "config.yaml", CONFIGS / f"{key}.yaml"]))
    published = cells(source)
    for cell in published:
        assert source.settings(cell) == run.cell_settings(cell)
        assert source.differing(cell, run.cell_settings(cell)) == [
            source.about.unlike[name] for name in (cell.partition, cell.model) if name in source.about.unlike
        ]
    assert any(cell.block == other.block for cell in run.cells for other in published)
    known = {cell.row for cell in published}
    assert {cell.row for cell in run.cells} <= known


def test_other_settings_are_named() -> None:
    niid = sources()["niid_bench"]
    cell = Cell("cifar10", "noniid", "10", "FEDPROX", "none", 0)
    theirs = niid.settings(cell)
    assert niid.differing(cell, theirs) == []
    assert niid.differing(cell, {**theirs, "evaluation": {"every": 5}}) == []
    ours = {**theirs, "algorithm": {"name": "fedprox", "mu": 1.0}, "network": {"name": "mlp"}}
    ours["setup"] = {**theirs["setup"], "rounds": 20}
    assert niid.differing(cell, ours) == [
        "setup.rounds: 20 here, 50 there",
        "algorithm.mu: 1.0 here, 0.001 there",
        "network.name: mlp here, unset there",
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Flower's numbers alone, to be changed."""
    shutil.copytree(PUBLISHED / "flower", tmp_path / "flower")
    monkeypatch.setattr(module, "PUBLISHED", tmp_path)
    sources.cache_clear()
    yield tmp_path / "flower"
    sources.cache_clear()


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("source.yaml", "error: none", "error: range", "source.yaml: error: "),
        ("source.yaml", "seeds: 1", "sseeds: 1", "source.yaml: seeds: is missing; sseeds: unknown key"),
        ("numbers.csv", "aggregator,", "rule,", "numbers.csv must have the columns dataset, "),
        ("numbers.csv", "accuracy,99.1", "accuracy,many", "numbers.csv must have the columns .*many"),
        ("numbers.csv", "none,accuracy,99.1", "none,acuracy,99.1", "numbers.csv: unknown metric acuracy"),
        ("numbers.csv", "FEDPROX", "FEDAVG", "numbers.csv: is there twice: mnist/iid/10/FEDAVG/none"),
    ],
)
def test_mistakes_are_one_line(folder: Path, file: str, old: str, new: str, words: str) -> None:
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=words) as caught:
        sources()
    assert "\n" not in str(caught.value)


def test_a_row_that_the_config_does_not_know(folder: Path) -> None:
    text = (folder / "numbers.csv").read_text(encoding="utf-8")
    (folder / "numbers.csv").write_text(f"{text}mnist,halves,10,FEDAVG,none,accuracy,99.0,\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"flower\.yaml does not describe 'halves' of mnist/halves/10/FEDAVG/none"):
        sources()["flower"].differing(Cell("mnist", "halves", "10", "FEDAVG", "none", 0), {})
