"""Published tables as data: each source is whole, its config runs it, and what differs from its set-up is named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bflp.errors import ConfigError, DataError
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.paper import sources as module
from bflp.paper.sources import CONFIGS, KEYS, PUBLISHED, Source, planned, sources
from bflp.settings.schema import load

ROOT = Path(__file__).resolve().parents[2]


def cells(source: Source) -> list[Cell]:
    return [Cell.parse("/".join([*names, "seed0"])) for names in source.numbers[KEYS].drop_duplicates().to_numpy()]


def test_every_folder_and_every_config_is_a_source() -> None:
    assert {file.name for file in PUBLISHED.iterdir() if file.is_dir()} == set(sources())
    assert {file.stem for file in CONFIGS.iterdir()} == set(sources())


@pytest.mark.parametrize("key", sorted(file.name for file in PUBLISHED.iterdir() if file.is_dir()))
def test_config_describes_every_published_row_and_runs_it_as_described(key: str) -> None:
    """Alone, as comparisons read it, and over the project's config, as it is run."""
    source, run = sources()[key], Plan(load([ROOT / "config.yaml", CONFIGS / f"{key}.yaml"]))
    published = cells(source)
    for cell in published:
        assert source.settings(cell) == planned(run, cell)
        assert source.differing(cell, planned(run, cell)) == [
            source.about.unlike[name] for name in (*cell.block, *cell.row) if name in source.about.unlike
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
        ("source.yaml", "FEDPROX: mu", "FEDPRX: mu", "source.yaml: unlike: FEDPRX is not in numbers.csv"),
        ("source.yaml", "error: none", "error: standard error", "line 2: .*: its error is not as .*: standard error"),
        ("numbers.csv", "aggregator,", "rule,", "numbers.csv, line 2: aggregator: is missing"),
        ("numbers.csv", "accuracy,99.1", "accuracy,many", "numbers.csv, line 2: mean: must be a valid number.*many"),
        ("numbers.csv", "accuracy,99.1", "accuracy,nan", "numbers.csv, line 2: mean: .*finite"),
        ("numbers.csv", "accuracy,99.1", "accuracy,991", "line 2: accuracy of mnist/iid/10/FEDAVG/none: must be in %"),
        ("numbers.csv", "99.1,", "99.1,-1", "numbers.csv, line 2: error: "),
        ("numbers.csv", "99.1,", "99.1,0.1", "line 2: .*: its error is not as source.yaml says: none"),
        ("numbers.csv", "none,accuracy,99.1", "none,acuracy,99.1", "numbers.csv, line 2: metric: .*acuracy"),
        ("numbers.csv", "FEDPROX", "FEDAVG", "line 3: accuracy of mnist/iid/10/FEDAVG/none: is there twice"),
        ("numbers.csv", "FEDAVG,none", "FEDAVG,N/A", r"line 2: .*: unknown rule N/A \(none: none\)"),
        ("numbers.csv", "mnist,iid", "mnst,iid", "line 2: .*: unknown data set mnst"),
        ("numbers.csv", "iid,10,", "halves,10,", "line 2: .*: 'halves' is not in its file below "),
        ("numbers.csv", "iid,10,", "iid,10.0,", "line 2: .*: '10.0' is not in its file below "),
    ],
)
def test_mistakes_are_one_line(folder: Path, file: str, old: str, new: str, words: str) -> None:
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=words) as caught:
        sources()
    assert "\n" not in str(caught.value)


def test_a_folder_without_its_files_is_named(folder: Path) -> None:
    numbers = (folder / "numbers.csv").read_text(encoding="utf-8").splitlines()
    (folder / "numbers.csv").write_text(f"{numbers[0]}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"numbers\.csv has no numbers"):
        sources()
    (folder / "source.yaml").unlink()
    with pytest.raises(ConfigError, match=r"source\.yaml"):
        sources()


def test_two_sources_have_two_names(folder: Path) -> None:
    shutil.copytree(PUBLISHED / "niid_bench", folder.parent / "niid_bench")
    file = folder.parent / "niid_bench" / "source.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("name: NIID-Bench", "name: Flower"), encoding="utf-8")
    with pytest.raises(DataError, match="another source has the name Flower, too"):
        sources()
