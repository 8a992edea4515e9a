"""Settings: what is refused, with which words. tests/faults has any config that may be."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from bflp.engine.augment import augment as augmented
from bflp.errors import ConfigError
from bflp.settings.schema import Settings
from bflp.settings.sections import Training
from bflp.settings.values import Section, identity, neutral

PROJECT = Path(__file__).resolve().parents[2]
PAPER: dict[str, Any] = yaml.safe_load((PROJECT / "config.yaml").read_text(encoding="utf-8"))
NAN, INFINITY = float("nan"), float("inf")
SETUP_10 = {"clients": 10, "fraction": 1.0, "rounds": 3}
HALF = {"clients": 100, "fraction": 0.5, "rounds": 500}
METHODS = {
    "A": {"base": "FVBA", "posterior": {"prior": {"mean": 1}}, "training": {"momentum": 0}, "aggregators": ["EAA"]},
    "B": {"base": "A", "optimiser": {"name": "adam", "betas": [0.9, 0.99]}, "algorithm": "fedavg", "network": "lenet"},
}


RULE = """
from dataclasses import dataclass
from typing import Annotated
from annotated_types import Ge
from bflp.aggregators import AggregationSettings

@dataclass(frozen=True, kw_only=True)
class Settings(AggregationSettings):
    strength: Annotated[float, Ge(0)] = 1.0
    steps: int = 3

def aggregate(means, log_variances, weights, settings, generator):
    return weights @ means, weights @ log_variances
"""


def chosen_rounds(**sections: Any) -> dict[str, Any]:
    """The paper's config with 50 rounds, and tables of other rounds than the last."""
    config = {**copy.deepcopy(PAPER), "grid": {**PAPER["grid"], "clients": [10]}}
    for section, values in sections.items():
        config[section] = {**config.get(section, {}), **values}
    return config


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"tables": {"at_round": 51}}, "tables.at_round: set-up 10 has 50 rounds, not 51"),
        ({"tables": {"average_last": 51}}, "tables.average_last: set-up 10 has 50 rounds, not 51"),
        (
            {"tables": {"at_round": 12}, "evaluation": {"every": 5}},
            "tables.at_round: set-up 10 is not evaluated after round 12 (evaluation.every is 5)",
        ),
        (
            {"tables": {"average_last": 5}, "evaluation": {"every": 5}},
            "tables.average_last: set-up 10 is not evaluated after each of its last 5 rounds (evaluation.every is 5)",
        ),
        (
            {"tables": {"at_round": 20, "metrics": ["accuracy", "brier"]}},
            "tables.at_round: brier (tables.metrics) is of the final model only (use accuracy, ece, nll, spread)",
        ),
        (
            {"tables": {"average_last": 5}, "statistics": {"equivalence": {"ace": 1}}},
            "tables.average_last: ace (statistics) is of the final model only (use accuracy, ece, nll, spread)",
        ),
        ({"tables": {"at_round": 20, "average_last": 5}}, "tables: at_round and average_last exclude each other"),
    ],
)
def test_rounds_that_no_table_can_show_are_refused(sections: dict[str, Any], words: str) -> None:
    assert words in message(chosen_rounds(**sections))


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"evaluation": {"final": {"temperature": True}}},
            "evaluation.final.temperature needs samples that no client trains on: set partitions.iid.held_out",
        ),
        (
            {"tables": {"metrics": ["accuracy", "ece_calibrated"]}},
            "tables.metrics: ece_calibrated is measured on demand: set evaluation.final.temperature",
        ),
        (
            {"evaluation": {"final": {"ensemble": {"beta": 0.5}}}},
            "evaluation.final.ensemble needs the models of the last round's clients: set keep_clients: true",
        ),
        (
            {"evaluation": {"final": {"personal": {"local_share": 0.5}}}},
            "evaluation.final.personal needs the models of the last round's clients: set keep_clients: true",
        ),
        (
            {"tables": {"metrics": ["personal_on_local_accuracy"]}},
            "tables.metrics: personal_on_local_accuracy is measured on demand: set evaluation.final.personal",
        ),
        (
            {"statistics": {"equivalence": {"nll_calibrated": 0.01}}},
            "statistics: nll_calibrated is measured on demand: set evaluation.final.temperature",
        ),
    ],
)
def test_what_is_measured_on_demand_must_be_asked_for_and_possible(sections: dict[str, Any], words: str) -> None:
    assert words in message(chosen_rounds(**sections))


def test_what_is_no_model_by_itself_is_not_kept() -> None:
    config = {**chosen_rounds(), "keep_clients": True}
    config["models"] = {"OTHER": {"posterior": "none", "weights": "data", "algorithm": "fedsparse"}}
    Settings.parse(config)
    config["grid"] = {**config["grid"], "models": ["OTHER"]}
    assert "keep_clients: what the clients of OTHER (fedsparse) train is no model by itself" in message(config)


def test_a_fitted_ensemble_needs_samples_to_fit_on() -> None:
    config = {**chosen_rounds(evaluation={"final": {"ensemble": {"beta": "fitted"}}}), "keep_clients": True}
    assert "evaluation.final.ensemble.beta: fitted needs samples that no client trains on" in message(config)
    config["partitions"] = {name: {**entry, "held_out": 0.1} for name, entry in PAPER["partitions"].items()}
    Settings.parse(config)


def test_rounds_that_tables_can_show() -> None:
    for tables, every in (({"at_round": 10}, 5), ({"at_round": 50}, 7), ({"average_last": 1}, 7), ({}, 1)):
        Settings.parse(chosen_rounds(tables=tables, evaluation={"every": every}))


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
    assert settings.setups["100"].fraction == 0.1


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
        # A right key in the wrong place.
        (("algorithm",), "fedprox", ["algorithm: unknown key here - it belongs in models.<name>"]),
        (("posterior", "kind"), "ivon", ["posterior.kind: unknown key here - it belongs in models.<name>.posterior"]),
        (("training", "rounds"), 5, ["training.rounds", "it belongs in round_time or in setups.<name>"]),
        (("models",), {"A": {"learning_rate": 1}}, ["models.A.learning_rate", "or in models.<name>.training"]),
        ((3,), 1, ["3"]),
        ((None,), 1, ["None"]),
        # Misspelt names, with the nearest right one.
        (("grid", "models"), ["FEDAGV"], ["grid.models", "'FEDAGV'", "did you mean 'FEDAVG'", "FVBWA"]),
        (("grid", "models"), ["fed"], ["grid.models", "'fed'", "did you mean 'FED'"]),
        (("grid", "aggregators"), ["EEA"], ["grid.aggregators", "'EEA'", "did you mean 'EAA'"]),
        (("grid", "aggregators"), ["none"], ["grid.aggregators", "'none'"]),
        (("tables", "target_accuracy"), 0, ["tables.target_accuracy", "must be greater than 0"]),
        (("tables", "target_accuracy"), 101, ["tables.target_accuracy", "must be less than or equal to 100"]),
        (("tables", "target_accuracy"), "high", ["tables.target_accuracy", "must be a valid number"]),
        (("statistics",), {"equivalence": {"acuracy": 1}}, ["statistics.equivalence.acuracy", "mean 'accuracy'"]),
        (("statistics",), {"equivalence": {"temperature": 1}}, ["statistics.equivalence.temperature: no row can be"]),
        (("tables", "metrics"), ["acuracy"], ["tables.metrics.0", "'acuracy'", "did you mean 'accuracy'"]),
        (("grid", "datasets"), ["cifar-10"], ["grid.datasets", "'cifar-10'", "did you mean 'cifar10'", "source:"]),
        (("grid", "partitions"), ["noniit"], ["grid.partitions", "'noniit'", "did you mean 'noniid'"]),
        (("partitions", "x"), {"strategy": "dirichelt"}, ["partitions.x.strategy", "did you mean 'dirichlet'"]),
        (("partitions", "x"), {"alpha": 1.0}, ["partitions.x.strategy", "is missing", "quantity"]),
        (("partitions", "x"), {"strategy": "dirichlet"}, ["partitions.x.alpha", "is missing"]),
        (("datasets", "fmnst"), {}, ["datasets", "'fmnst'", "did you mean 'fmnist'"]),
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
        (("setups", 0), {"fraction": 1, "rounds": 1}, ["setups.0.clients", "greater than 0"]),
        (("grid", "clients"), [-10], ["grid.clients.0", "'-10'", "letters, digits"]),
        (("grid", "clients"), [20], ["grid.clients", "'20'", "known: 10, 100", "setups"]),
        (("grid", "seeds"), [-1], ["grid.seeds.0", "greater than or equal to 0"]),
        (("grid", "seeds"), [2**32], ["grid.seeds.0", "less than"]),
        (("aggregators", "PPA", "population"), 1, ["aggregators.PPA.population", "2"]),
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
        (("setups", 10, "clients"), 20, ["setups.10.clients", "20 contradicts"]),
        (("setups", "half"), {"fraction": 0.5, "rounds": 1}, ["setups.half.clients", "is missing"]),
        (("setups", "a b"), {"clients": 1, "fraction": 0.5, "rounds": 1}, ["setups.a b", "letters, digits"]),
        (("partitions", True), {"strategy": "iid"}, ["partitions", "put it in quotes"]),
        (("grid", "partitions"), [False], ["grid.partitions.0", "put it in quotes"]),
        # Names become folders and parts of commands.
        *((("grid", "datasets"), [name], ["datasets", "letters, digits"]) for name in ("x y", "a/b", "../x", "")),
        *((("datasets", name), {"source": "x"}, ["datasets", "letters"]) for name in ("$(id)", "a'b", 'a"b', "{a}")),
        (("partitions", "a b"), {"strategy": "iid"}, ["partitions", "'a b'", "letters, digits"]),
        (("partitions", ".."), {"strategy": "iid"}, ["partitions", "'..'"]),
        *((("results_dir",), text, ["results_dir", "must be a path"]) for text in ("$(id)", 'a"b', "a'b", "{a}", "a*")),
        *(
            (("results_dir",), text, ["results_dir", "must be a path"])
            for text in ("", " ", "a\nb", "~/x", "-x", ".", "./", "./.")
        ),
        *((("datasets", name), {"source": "x"}, ["datasets", "letters"]) for name in ("x" * 101, "a..b")),
        *((("results_dir",), text, ["results_dir", "shorter path"]) for text in ("x" * 201, "ä" * 101, "x/" * 501)),
        (("results_dir",), "\ud800", ["results_dir", "characters that file names can have"]),
        (("training", "batch_size"), 2**31, ["training.batch_size", "less than"]),
        (("datasets", "mine.made"), {"source": "x.npz"}, ["datasets", "'mine.made'"]),
        (("data_dir",), None, ["data_dir", "empty"]),
        (("datasets", "mine"), {"source": "`id`"}, ["datasets.mine.source", "must be a path"]),
        (("aggregators", "MINE"), {"file": "nowhere.py"}, ["aggregators.MINE.file", "no file nowhere.py"]),
        (("aggregators", "MINE"), {"strength": 1}, ["aggregators", "unknown 'MINE'", "file"]),
        (("aggregators", "MINE"), {"file": "config.yaml", "x": 1}, ["aggregators.MINE", "config.yaml", "line"]),
        (("aggregators", "MINE"), {"file": "a*b"}, ["aggregators.MINE.file", "must be a path"]),
        (("aggregators", "PAA"), {}, ["aggregators", "did you mean 'PPA'"]),
        (("aggregators", "eaa"), {"file": "config.yaml"}, ["aggregators.eaa.file", "already"]),
        (("aggregators", "a-b"), {"file": "config.yaml"}, ["aggregators", "'a-b'", "letters, digits and _"]),
        (("aggregators", "PPA", "populaton"), 1, ["aggregators.PPA.populaton", "did you mean 'population'"]),
        (("aggregators", "PPA", "population"), True, ["aggregators.PPA.population", "true or false"]),
        (("aggregators", "CF"), {"population": 5}, ["aggregators.CF.population", "unknown key"]),
        # What earlier versions called it.
        (("aggregator_files",), {}, ["aggregator_files: unknown key", "now `aggregators: {NAME: {file: ...}}`"]),
        (("checkpoint",), {"rounds": 1}, ["checkpoint: unknown key", "now `checkpoint_seconds`"]),
        (("posterior", "ppa_population"), 9, ["posterior.ppa_population: unknown key", "aggregators: {PPA:"]),
        (("tables", "metrics"), ["adaptive_ece"], ["tables.metrics.0", "now `ace`"]),
        # Out of distribution.
        (("tables", "metrics"), ["ood_auroc"], ["tables.metrics", "ood_auroc", "out_of_distribution"]),
        (("evaluation", "out_of_distribution"), "mnst", ["evaluation.out_of_distribution", "did you mean 'mnist'"]),
        (("datasets", "svhn"), {"out_of_distribution": "x"}, ["datasets.svhn.out_of_distribution", "unknown 'x'"]),
        (("evaluation", "final"), {"monte_carlo_samples": 0}, ["evaluation.final.monte_carlo_samples", "greater"]),
        # Later settings.
        (("training", "learning_rate_decay"), 0, ["training.learning_rate_decay", "greater than 0"]),
        (("training", "learning_rate_decay"), 1.1, ["training.learning_rate_decay", "less than or equal to 1"]),
        (("training", "clip_norm"), 0, ["training.clip_norm", "greater than 0"]),
        (("training", "stack"), 0, ["training.stack", "greater than 0"]),
        (("partitions", "iid", "held_out"), 1, ["partitions.iid.held_out", "less than 1"]),
        (("partitions", "noniid", "min_samples"), -1, ["partitions.noniid.min_samples", "greater than or equal to 0"]),
        (("checkpoint_seconds",), -1, ["checkpoint_seconds", "greater than or equal to 0"]),
        (("network",), "lenett", ["network.name", "did you mean 'lenet'"]),
        (("network",), {"name": "lenet", "width": 3}, ["network.width", "unknown key"]),
        (("training", "lr"), 0.1, ["training.lr: unknown key (known: local_epochs, ", "learning_rate"]),
        (
            ("evaluation", "final"),
            {"ensemble": {"beta": 2}},
            ["ensemble.beta: must be a number from 0 to 1, or fitted"],
        ),
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
        (("grid", "clients"), ["10"], lambda settings: settings.grid.clients == ["10"]),
        (("setups", 10, "fraction"), 1, lambda settings: settings.setups["10"].fraction == 1.0),
        (("partitions", 0.1), {"strategy": "iid"}, lambda settings: settings.partitions["0.1"].strategy == "iid"),
        (("setups", "10"), {"rounds": 3}, lambda settings: vars(settings.setups["10"]) == SETUP_10),
        (("setups", "100-half"), HALF, lambda settings: settings.setups["100-half"].clients == 100),
        (("partitions", "noniid", "min_samples"), 0, lambda settings: settings.partitions["noniid"].min_samples == 0),
        (("round_time", "clients"), 100, lambda settings: settings.round_time.clients == "100"),
        (("results_dir",), "my results//new/", lambda settings: settings.results_dir == "my results/new"),
        (("results_dir",), "./results", lambda settings: settings.results_dir == "results"),
        (("datasets", "cifar10"), {"augment": None}, lambda settings: settings.augment("cifar10") is None),
    ],
)
def test_what_is_read_generously(path: tuple[Any, ...], value: Any, read: Any) -> None:
    # YAML reads 1e-3, without a point, as a text; `--config` gives texts, too.
    assert read(Settings.parse(changed(path, value)))


def test_own_rule_with_settings(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(RULE, encoding="utf-8")
    config = changed(("aggregators", "MINE"), {"file": str(file), "strength": 2})
    config["grid"]["aggregators"] = ["MINE", "PPA", "CF"]
    settings = Settings.parse(config)
    assert settings.aggregators["MINE"].file == str(file)
    # As given, or by default.
    assert settings.rule("MINE")[1] == {"strength": 2.0, "steps": 3}
    assert (settings.rule("PPA")[1], settings.rule("CF")[1]) == ({"population": 1000}, {})
    assert (settings.rule_file("MINE"), settings.rule_file("PPA")) == (str(file), None)
    config["aggregators"]["MINE"]["strength"] = -1
    assert "aggregators.MINE.strength: must be greater than or equal to 0 (is -1)" in message(config)


def test_out_of_distribution_set_of_another_image_shape() -> None:
    config = changed(("evaluation", "out_of_distribution"), "cifar10")
    config["grid"]["datasets"] = ["fmnist"]
    assert "images of cifar10 are 3x32x32, but those of fmnist 1x28x28" in message(config)
    # The data set's own wins, also where it says none.
    config["datasets"] = {"fmnist": {"out_of_distribution": "mnist"}}
    assert Settings.parse(config).out_of_distribution("fmnist") == "mnist"
    config["datasets"] = {"fmnist": {"out_of_distribution": None}}
    assert Settings.parse(config).out_of_distribution("fmnist") is None


@pytest.mark.parametrize(
    ("augment", "shape", "words"),
    [
        ({"crop_padding": 8}, (3, 9, 9), None),
        ({"crop_padding": 8}, (3, 8, 9), "augment.crop_padding: must be less than a side of the images, which are 8x9"),
        ({"crop_padding": 8}, (3, 9, 8), "which are 9x8 (is 8)"),
        ({"flip_probability": 0.5}, (16,), "datasets.fmnist.augment: is for images"),
        ({}, (16,), "datasets.fmnist.augment: is for images"),
        (None, (16,), None),
    ],
)
def test_augmentation_must_suit_the_images(
    augment: dict[str, Any] | None, shape: tuple[int, ...], words: str | None
) -> None:
    """A reflected border is narrower than the image."""
    settings = Settings.parse(changed(("datasets", "fmnist"), {"source": "some.npz", "augment": augment}))
    if words is None:
        settings.check_shapes({"fmnist": shape})
        if augment:
            moved = torch.zeros((2, *shape))
            assert augmented(moved, augment["crop_padding"], 0.0, torch.Generator()).shape == moved.shape
    else:
        with pytest.raises(ValueError, match=re.escape(words)):
            settings.check_shapes({"fmnist": shape})


def test_one_out_of_distribution_set_serves_the_tables() -> None:
    config = changed(("datasets", "fmnist"), {"out_of_distribution": "mnist"})
    config["tables"]["metrics"] = ["ood_auroc"]
    settings = Settings.parse(config)
    assert (settings.out_of_distribution("fmnist"), settings.out_of_distribution("svhn")) == ("mnist", None)


def test_identity_leaves_out_what_is_neutral() -> None:
    before = {
        "local_epochs": 10,
        "batch_size": 64,
        "learning_rate": 0.01,
        "momentum": 0.9,
        "weight_decay": 1e-5,
    }
    assert identity(Training()) == before
    assert identity(Training(learning_rate_decay=1, clip_norm=None)) == before
    assert identity(Training(learning_rate_decay=0.5)) == {**before, "learning_rate_decay": 0.5}
    assert identity(Training(clip_norm=2)) == {**before, "clip_norm": 2.0}
    settings = Settings.parse(changed(("partitions", "iid"), {"strategy": "iid", "seed": 0}))
    # Seed 0 is a seed, unlike none.
    assert identity(settings.partitions["iid"]) == {"strategy": "iid", "seed": 0}
    assert identity(settings.partitions["noniid"]) == {"strategy": "dirichlet", "alpha": 0.5, "min_samples": 10}
    assert identity(settings.posterior) == {
        "prior": {"mean": 0.0, "standard_deviation": 1.0},
        "log_variance": {"initial": -9.0, "bounds": [-8.0, 8.0], "enforce": "clamp"},
    }


class Inner(Section):
    width: int = 3
    shape: str = neutral("round")


class Outer(Section):
    inner: Inner = Inner()
    mode: str | None = neutral(None)


def test_identity_leaves_out_what_is_neutral_in_a_section_within() -> None:
    assert identity(Outer()) == {"inner": {"width": 3}}
    assert identity(Outer(inner=Inner(shape="square"))) == {"inner": {"width": 3, "shape": "square"}}
    assert identity(Outer(mode="")) == {"inner": {"width": 3}, "mode": ""}


def test_canonical_text_holds_all_settings() -> None:
    for config in (
        PAPER,
        {**PAPER, "models": METHODS},
        changed(("datasets", "mine"), {"source": "x.npz", "augment": {"flip_probability": 0.5}}),
    ):
        settings = Settings.parse(config)
        assert Settings.parse(json.loads(settings.canonical())) == settings
