"""Config files: what cannot be read, and how one lies over another."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from snakemake.utils import update_config

from bflp.errors import ConfigError
from bflp.settings.read import overlaid, read_file
from bflp.settings.schema import load

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("grid: [1, 2\nfoo: {bar\n", ["line 2", "not valid YAML"]),
        ("grid:\n\tdatasets: [a]\n", ["line 2", "not valid YAML"]),
        (
            "training: {momentum: 0.9}\ndevice: cpu\ntraining: {batch_size: 5}\n",
            ["line 3", "'training' is there twice"],
        ),
        ("a: {b: 1, c: 2, b: 3}\n", ["line 1", "'b' is there twice"]),
        ("? [1, 2]\n: 3\n", ["not valid YAML"]),
        ("a: 1\nseeds: [1:4]\n", ["line 2, column 9", "1:4 is read as 64, in base 60"]),
        ("seeds: [1, 010]\n", ["line 1, column 12: 010 is read as 8, in base 8"]),
        ("seeds: [0_10]\n", ["0_10 is read as 8, in base 8"]),
        ("rate: 1:30.5\n", ["line 1", "1:30.5 is read as 90.5, in base 60"]),
        ('device: !!python/object/apply:os.system ["true"]\n', ["line 1", "not valid YAML"]),
        ("- 1\n- 2\n", ["must hold a mapping"]),
        ("hello\n", ["must hold a mapping"]),
        ("", ["must hold a mapping"]),
        ("\x00\x01", ["not valid YAML"]),
        ("date: 2020-13-45\n", ["not valid YAML"]),
        ("__use_yte__: true\n?if True:\n  device: cpu\n", ["__use_yte__", "not supported"]),
    ],
)
def test_broken_files_are_named_with_the_line(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load([PROJECT / "config.yaml", file])
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in [str(file), *words]), caught.value


def test_a_file_that_is_no_text_or_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"\xff\xfe\x80")
    with pytest.raises(ConfigError, match=r"binary\.yaml"):
        load([file])
    with pytest.raises(ConfigError, match=r"there is no config file .*missing\.yaml"):
        load([tmp_path / "missing.yaml"])


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    file = tmp_path / "numbers.yaml"
    file.write_text("a: [0, -1, 0.5, 1.0e-3, 0x10, 1_000, .5, '010', 07, -00]\n", encoding="utf-8")
    assert read_file(file) == {"a": [0, -1, 0.5, 0.001, 16, 1000, 0.5, "010", 7, 0]}


def test_yaml_anchors_and_merges_still_work(tmp_path: Path) -> None:
    file = tmp_path / "anchors.yaml"
    file.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: *a\n", encoding="utf-8")
    assert read_file(file) == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}, "c": {"x": 1, "y": 2}}


NESTED = st.recursive(
    st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "c", 10]), inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(st.sampled_from(["a", "b", "c", 10]), NESTED, max_size=4)


@hypothesis_settings(max_examples=200, deadline=None)
@given(st.lists(MAPPINGS, min_size=1, max_size=3))
def test_overlays_are_snakemakes(mappings: list[dict[Any, Any]]) -> None:
    # Snakemake joins what --configfile names, then lays it over the workflow's config file.
    over: dict[Any, Any] = {}
    for mapping in mappings[1:]:
        update_config(over, copy.deepcopy(mapping))
    theirs = copy.deepcopy(mappings[0])
    update_config(theirs, over)
    assert overlaid(map(copy.deepcopy, mappings)) == theirs


def test_the_demo_over_the_papers_config() -> None:
    demo = yaml.safe_load((PROJECT / "examples" / "demo.yaml").read_text(encoding="utf-8"))
    settings = load([PROJECT / "config.yaml", PROJECT / "examples" / "demo.yaml"])
    assert settings.grid.datasets == ["fmnist-mini"]  # lists replace
    assert settings.setups["10"].rounds == demo["setups"][10]["rounds"]  # mappings merge
    assert settings.setups["100"].rounds == 500
    assert settings.training.momentum == 0.9


@pytest.mark.parametrize(
    ("base", "top", "expected"),
    [
        # Another strategy, name, kind or file is something else; the same one merges.
        ({"p": {"strategy": "dirichlet", "alpha": 1}}, {"p": {"strategy": "labels"}}, {"p": {"strategy": "labels"}}),
        (
            {"p": {"strategy": "quantity", "alpha": 1}},
            {"p": {"strategy": "quantity", "min_samples": 2}},
            {"p": {"strategy": "quantity", "alpha": 1, "min_samples": 2}},
        ),
        ({"p": {"strategy": "quantity", "alpha": 1}}, {"p": {"alpha": 2}}, {"p": {"strategy": "quantity", "alpha": 2}}),
        ({"n": {"name": "mlp", "sizes": [3]}}, {"n": {"file": "mine.py"}}, {"n": {"file": "mine.py"}}),
        ({"k": {"kind": "laplace", "samples": 3}}, {"k": {"kind": "swag"}}, {"k": {"kind": "swag"}}),
        ({"a": {"file": "a.py", "strength": 2}}, {"a": {"file": "b.py"}}, {"a": {"file": "b.py"}}),
        # What has no name yet gets one.
        ({"o": {"learning_rate": 1}}, {"o": {"name": "adam"}}, {"o": {"learning_rate": 1, "name": "adam"}}),
        # An empty mapping changes none, but is one where there was nothing.
        ({"m": {"a": 1}, "n": None, "o": 1}, {"m": {}, "n": {}, "o": {}}, {"m": {"a": 1}, "n": {}, "o": 1}),
        # These words as names of entries.
        (
            {"datasets": {"name": {"source": "a"}, "b": {}}},
            {"datasets": {"name": {"source": "c"}}},
            {"datasets": {"name": {"source": "c"}, "b": {}}},
        ),
    ],
)
def test_another_tag_replaces_the_mapping(base: Any, top: Any, expected: Any) -> None:
    before = copy.deepcopy(base)
    assert overlaid([base, top]) == expected
    assert base == before


def test_an_empty_mapping_over_null_lacks_what_it_must_hold(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("evaluation: {final: {personal: {}}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"evaluation\.final\.personal\.local_share: is missing"):
        load([PROJECT / "config.yaml", tmp_path / "own.yaml"])


def test_an_overlay_may_change_a_strategy(tmp_path: Path) -> None:
    file = tmp_path / "labels.yaml"
    file.write_text("partitions: {noniid: {strategy: labels, labels_per_client: 2}}\n", encoding="utf-8")
    settings = load([PROJECT / "config.yaml", file])
    assert settings.partitions["noniid"].model_dump(exclude_unset=True) == {
        "strategy": "labels",
        "labels_per_client": 2,
    }


def test_a_set_up_in_json_is_the_same_set_up(tmp_path: Path) -> None:
    file = tmp_path / "over.json"
    file.write_text(json.dumps({"setups": {"10": {"rounds": 3}}, "grid": {"clients": ["10"]}}), encoding="utf-8")
    settings = load([PROJECT / "config.yaml", file])
    assert sorted(settings.setups) == ["10", "100"]
    assert (settings.setups["10"].rounds, settings.setups["10"].fraction) == (3, 1.0)


def test_values_of_the_command_line_lie_over_all_files() -> None:
    settings = load([PROJECT / "config.yaml", PROJECT / "examples" / "demo.yaml"], {"processes": 3, "device": "auto"})
    assert (settings.processes, settings.device, settings.results_dir) == (3, "auto", "results/demo")


@pytest.mark.parametrize(("files", "cells"), [([], 720), (["examples/demo.yaml"], 48)])
def test_the_grids_that_come_with_the_project_keep_their_size(files: list[str], cells: int) -> None:
    settings = load([PROJECT / "config.yaml", *(PROJECT / file for file in files)])
    grid = settings.grid
    rows = sum(len(settings.method(name).aggregators) or 1 for name in grid.models)
    assert rows == 12
    assert len(grid.datasets) * len(grid.partitions) * len(grid.clients) * rows * len(grid.seeds) == cells


def test_a_mistake_is_told_with_file_and_line(tmp_path: Path) -> None:
    """Of several files, the one that holds it: a part of the place may be in others, another value of it too."""
    base = PROJECT / "config.yaml"
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("training:\n  momentum: 0.5\n  learning_rat: 0.1\npartitions:\n  noniid: {alpha: -1}\n")
    second.write_text("training: {momentum: 0.5, clip_norm: null}\ngrid:\n  partitions: [iidd]\n")
    with pytest.raises(ConfigError) as found:
        load([base, first, second])
    assert f"{first}, line 3: training.learning_rat: unknown key" in str(found.value)
    assert f"{first}, line 5: partitions.noniid.alpha: must be greater than 0" in str(found.value)
    first.write_text("{}")
    with pytest.raises(ConfigError, match=re.escape(f"{second}, line 3: grid.partitions: unknown 'iidd'")):
        load([base, first, second])
    # A text over an earlier mapping stands for all of it.
    first.write_text("network:\n  name: mlp\n")
    second.write_text("\nnetwork: mpl\n")
    with pytest.raises(ConfigError, match=re.escape(f"{second}, line 2: network.name: unknown 'mpl'")):
        load([base, first, second])
    # The command line is no file: config.yaml has another value there.
    with pytest.raises(ConfigError, match=r"^processes: must be greater than 0"):
        load([base], {"processes": 0})


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{PPA: {\n  population: -1}}", "line 2: aggregators.PPA.population: must be greater than"),
        ("{CF:\n  {width: 3}}", "line 2: aggregators.CF.width: unknown key"),
        ("{\n  MINE: {file: mine.py}}\ngrid: {aggregators: [MINE]}", "line 2: aggregators.MINE: mine.py must define a"),
    ],
)
def test_mistakes_of_rules_too(written: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("")
    Path("over.yaml").write_text(f"aggregators: {written}\n")
    with pytest.raises(ConfigError) as found:
        load([PROJECT / "config.yaml", Path("over.yaml")])
    assert str(found.value).startswith(f"over.yaml, {told}")
