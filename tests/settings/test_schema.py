"""Settings: what is refused, with which words, and that nothing but a ConfigError ever leaves the parser."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from snakemake.utils import update_config

from bflp.errors import ConfigError
from bflp.settings.schema import Settings, load, overlaid, read_file

PROJECT = Path(__file__).resolve().parents[2]
PAPER: dict[str, Any] = yaml.safe_load((PROJECT / "config.yaml").read_text(encoding="utf-8"))
NAN, INFINITY = float("nan"), float("inf")


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The paper's config with one value set."""
    config = copy.deepcopy(PAPER)
    place = config
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return config


def message(config: Any) -> str:
    """What is said of a wrong config: one line."""
    with pytest.raises(ConfigError) as caught:
        Settings.parse(config)
    text = str(caught.value)
    assert text and "\n" not in text
    return text


def test_the_papers_config_is_valid() -> None:
    settings = Settings.parse(PAPER)
    assert settings.grid.seeds == [0, 1, 2, 3, 4]
    assert settings.training.learning_rate == 0.01
    assert settings.setups[100].fraction == 0.1


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        # Keys that are not known, with the nearest that is.
        (("trainning",), {}, ["trainning", "unknown key", "'training'"]),
        (("training", "learnign_rate"), 0.1, ["training.learnign_rate", "unknown key", "'learning_rate'"]),
        (("posterior", "prior", "standard_devation"), 1, ["posterior.prior.", "'standard_deviation'"]),
        (("posterior", "log_variance", "bound"), 1, ["posterior.log_variance.bound:", "'bounds'"]),
        (("setups", 10, "fracton"), 1, ["setups.10.fracton", "'fraction'"]),
        (("partitions", "noniid"), {"strategy": "dirichlet", "alfa": 1}, ["partitions.noniid.alfa", "'alpha'"]),
        (("datasets", "cifar10"), {"augment": {"crop_paddin": 4}}, ["datasets.cifar10.augment", "'crop_padding'"]),
        (("datasets", "labels"), {"sorce": "x.npz"}, ["datasets.labels.sorce", "'source'"]),
        (("grid", "seed"), [0], ["grid.seed:", "'seeds'"]),
        (("zzzzzz",), 1, ["zzzzzz", "unknown key"]),
        ((3,), 1, ["3"]),
        ((None,), 1, ["None"]),
        # Misspelt names, with the nearest right one.
        (("grid", "models"), ["FEDAGV"], ["grid.models.0", "'FEDAGV'", "did you mean 'FEDAVG'", "FVBWA"]),
        (("grid", "models"), ["fed"], ["grid.models.0", "'fed'", "did you mean 'FED'"]),
        (("grid", "aggregators"), ["EEA"], ["grid.aggregators", "'EEA'", "did you mean 'EAA'"]),
        (("grid", "aggregators"), ["none"], ["grid.aggregators", "'none'"]),
        (("grid", "datasets"), ["cifar-10"], ["grid.datasets", "'cifar-10'", "did you mean 'cifar10'", "source:"]),
        (("grid", "partitions"), ["noniit"], ["grid.partitions", "'noniit'", "did you mean 'noniid'"]),
        (("partitions", "x"), {"strategy": "dirichelt"}, ["partitions.x.strategy", "did you mean 'dirichlet'"]),
        (("partitions", "x"), {"alpha": 1.0}, ["partitions.x.strategy", "is missing", "quantity"]),
        (("partitions", "x"), {"strategy": "dirichlet"}, ["partitions.x.alpha", "is missing"]),
        (("datasets", "fmnst"), {}, ["datasets.fmnst", "did you mean 'fmnist'"]),
        (("device",), "gpu", ["device", "'gpu'", "cuda"]),
        (("aggregation",), "refrence", ["aggregation", "did you mean 'reference'"]),
        # Numbers out of range.
        (("training", "learning_rate"), 0, ["training.learning_rate", "greater than 0", "is 0"]),
        (("training", "learning_rate"), -0.1, ["training.learning_rate", "greater than 0", "is -0.1"]),
        (("training", "learning_rate"), NAN, ["training.learning_rate"]),
        (("training", "learning_rate"), INFINITY, ["training.learning_rate", "finite"]),
        (("training", "momentum"), 1, ["training.momentum", "less than 1"]),
        (("training", "weight_decay"), -1, ["training.weight_decay"]),
        (("training", "batch_size"), 0, ["training.batch_size", "greater than 0"]),
        (("setups", 10, "rounds"), 0, ["setups.10.rounds", "greater than 0"]),
        (("setups", 10, "rounds"), 1.5, ["setups.10.rounds", "1.5"]),
        (("setups", 10, "fraction"), 1.01, ["setups.10.fraction", "less than or equal to 1", "1.01"]),
        (("setups", 10, "fraction"), 0, ["setups.10.fraction", "greater than 0"]),
        (("setups", 0), {"fraction": 1, "rounds": 1}, ["setups.0", "greater than 0"]),
        (("grid", "clients"), [0], ["grid.clients.0", "greater than 0"]),
        (("grid", "clients"), [-10], ["grid.clients.0", "greater than 0"]),
        (("grid", "clients"), [20], ["grid.clients", "20", "known: 10, 100", "setups"]),
        (("grid", "seeds"), [-1], ["grid.seeds.0", "greater than or equal to 0"]),
        (("grid", "seeds"), [2**32], ["grid.seeds.0", "less than"]),
        (("posterior", "ppa_population"), 1, ["posterior.ppa_population"]),
        (("posterior", "log_variance", "bounds"), [8, -8], ["posterior.log_variance", "bounds", "lowest"]),
        (("posterior", "log_variance", "bounds"), [-8], ["posterior.log_variance.bounds"]),
        (("posterior", "log_variance", "bounds"), [-8, 8, 9], ["posterior.log_variance.bounds", "list of 2"]),
        (("posterior", "log_variance", "bounds"), [-99, 8], ["posterior.log_variance", "float32"]),
        (("processes",), 0, ["processes", "greater than 0"]),
        # Lists.
        (("grid", "seeds"), [0, 1, 0], ["grid", "seeds", "0", "more than once"]),
        (("grid", "seeds"), [0, "0"], ["grid", "seeds", "more than once"]),
        (("grid", "datasets"), ["fmnist", "fmnist"], ["grid", "datasets", "fmnist", "more than once"]),
        (("grid", "seeds"), [], ["grid.seeds", "empty list"]),
        (("grid", "datasets"), [], ["grid.datasets", "empty list"]),
        (("grid", "aggregators"), [], ["aggregators", "at least one"]),
        (("grid", "seeds"), 3, ["grid.seeds", "must be a list", "3"]),
        (("grid", "models"), "FED", ["grid.models", "must be a list", "'FED'"]),
        # Values of the wrong kind.
        (("training", "learning_rate"), True, ["training.learning_rate", "true or false"]),
        (("training", "learning_rate"), "fast", ["training.learning_rate", "number", "'fast'"]),
        (("training", "learning_rate"), None, ["training.learning_rate", "number", "empty"]),
        (("setups", 10, "rounds"), True, ["setups.10.rounds", "true or false"]),
        (("grid", "seeds"), [True], ["grid.seeds.0", "true or false"]),
        (("grid", "seeds"), [None], ["grid.seeds.0", "empty"]),
        (("datasets", "cifar10"), {"augment": {"crop_padding": True}}, ["datasets.cifar10.augment.crop_padding"]),
        (("training",), None, ["training", "must be a mapping", "empty"]),
        (("setups", 10), [1.0, 50], ["setups.10", "must be a mapping"]),
        (("partitions",), {}, ["partition", "'iid'", "known: none"]),
        (("partitions", "noniid"), None, ["partitions.noniid", "must be a mapping"]),
        (("grid",), {}, ["grid.datasets: is missing", "grid.seeds: is missing"]),
        (("setups", "10"), {"fraction": 1, "rounds": 1}, ["setups", "10", "twice"]),
        # Names become folders and parts of commands.
        *((("grid", "datasets"), [name], ["datasets", "letters, digits"]) for name in ("x y", "a/b", "../x", "")),
        *((("datasets", name), {"source": "x"}, ["datasets", "letters"]) for name in ("$(id)", "a'b", 'a"b', "{a}")),
        (("partitions", "a b"), {"strategy": "iid"}, ["partitions", "'a b'", "letters, digits"]),
        (("partitions", ".."), {"strategy": "iid"}, ["partitions", "'..'"]),
        *((("results_dir",), text, ["results_dir", "must be a path"]) for text in ("$(id)", 'a"b', "a'b", "{a}", "a*")),
        *((("results_dir",), text, ["results_dir", "must be a path"]) for text in ("", " ", "a\nb", "~/x", "-x")),
        (("data_dir",), None, ["data_dir", "empty"]),
        (("datasets", "mine"), {"source": "`id`"}, ["datasets.mine.source", "must be a path"]),
        (("aggregator_files",), {"MINE": "nowhere.py"}, ["aggregator_files.MINE", "no file nowhere.py"]),
        (("aggregator_files",), {"eaa": "config.yaml"}, ["aggregator_files.eaa", "already"]),
        (("aggregator_files",), {"a b": "config.yaml"}, ["aggregator_files", "'a b'"]),
    ],
)
def test_wrong_settings_are_named(path: tuple[Any, ...], value: Any, words: list[str]) -> None:
    text = message(changed(path, value))
    assert all(word in text for word in words), text


def test_more_clients_than_samples_of_a_built_in_data_set() -> None:
    config = changed(("grid", "clients"), [60001])
    config["setups"][60001] = {"fraction": 0.1, "rounds": 1}
    config["grid"]["datasets"] = ["fmnist"]
    assert "60001 clients are more than the 60000 training samples of fmnist" in message(config)


def test_more_samples_per_client_than_there_are() -> None:
    text = message(changed(("partitions", "noniid", "min_samples"), 501))
    assert "partitions.noniid.min_samples" in text
    assert "100 clients with 501 samples each" in text


def test_every_mistake_is_named_at_once() -> None:
    config = changed(("training", "learning_rate"), -1)
    config["training"]["momentum"] = 2
    config["devise"] = "cpu"
    text = message(config)
    assert all(key in text for key in ("training.learning_rate", "training.momentum", "devise"))


@pytest.mark.parametrize("config", [None, [], "x", 3, [("grid", {})]])
def test_what_is_no_mapping(config: Any) -> None:
    assert "must be a mapping" in message(config)


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        (("training", "learning_rate"), "1e-3", lambda settings: settings.training.learning_rate == 0.001),
        (("grid", "clients"), ["10"], lambda settings: settings.grid.clients == [10]),
        (("setups", 10, "fraction"), 1, lambda settings: settings.setups[10].fraction == 1.0),
        (("results_dir",), "my results//new/", lambda settings: settings.results_dir == "my results/new"),
        (("results_dir",), "./results", lambda settings: settings.results_dir == "results"),
        (("datasets", "cifar10"), {"augment": None}, lambda settings: settings.augment("cifar10") is None),
    ],
)
def test_what_is_read_generously(path: tuple[Any, ...], value: Any, read: Any) -> None:
    # YAML reads 1e-3, without a point, as a text; `--config` gives texts, too.
    assert read(Settings.parse(changed(path, value)))


def test_canonical_text_holds_all_settings() -> None:
    for config in (PAPER, changed(("datasets", "mine"), {"source": "x.npz", "augment": {"flip_probability": 0.5}})):
        settings = Settings.parse(config)
        assert Settings.parse(json.loads(settings.canonical())) == settings


# Fuzzing -------------------------------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 101),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["iid", "dirichlet", "FED", "FVBA", "EAA", "fmnist", "mine", "auto", "{x}", "../x", "1e-5", "10"]),
    st.dates(),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3),
    max_leaves=6,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in items for place in _places(child, (*path, key)))]


PLACES = [place for place in _places(PAPER) if place]


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """The paper's config after up to four random changes: a value replaced, a key removed, renamed, or added."""
    config = copy.deepcopy(PAPER)
    for _ in range(draw(st.integers(1, 4))):
        *parents, last = draw(st.sampled_from(PLACES))
        place: Any = config
        try:
            for key in parents:
                place = place[key]
            how = draw(st.sampled_from(["replace", "remove", "rename", "add"]))
            if how == "replace":
                place[last] = draw(JUNK)
            elif how == "remove":
                del place[last]
            elif isinstance(place, list):
                place.append(draw(JUNK))
            elif how == "rename":
                place[draw(SCALARS)] = place.pop(last)
            else:
                place[draw(SCALARS)] = draw(JUNK)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # an earlier change has removed the place
    return config


@hypothesis_settings(max_examples=300, deadline=None)
@given(mutated() | JUNK)
def test_nothing_but_a_config_error_leaves_the_parser(config: Any) -> None:
    try:
        settings = Settings.parse(config)
    except ConfigError as error:
        assert str(error)
        assert "\n" not in str(error)
        assert "pydantic" not in str(error)
    else:
        assert Settings.parse(json.loads(settings.canonical())) == settings


# Files ---------------------------------------------------------------------------------------------------------------


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
        ('device: !!python/object/apply:os.system ["true"]\n', ["line 1", "not valid YAML"]),
        ("- 1\n- 2\n", ["must hold a mapping"]),
        ("hello\n", ["must hold a mapping"]),
        ("", ["must hold a mapping"]),
        ("\x00\x01", ["not valid YAML"]),
        ("date: 2020-13-45\n", ["not valid YAML"]),
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
    assert settings.setups[10].rounds == demo["setups"][10]["rounds"]  # mappings merge
    assert settings.setups[100].rounds == 500
    assert settings.training.momentum == 0.9
