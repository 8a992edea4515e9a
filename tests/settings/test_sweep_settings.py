"""Sweeps: which rows an entry of `models` becomes, what each is trained with, and what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bflp.errors import ConfigError
from bflp.grid.plan import Plan
from bflp.settings.schema import Settings

PROJECT = Path(__file__).resolve().parents[2]
PAPER: dict[str, Any] = yaml.safe_load((PROJECT / "config.yaml").read_text(encoding="utf-8"))
RATES = {"training.learning_rate": [0.001, 0.01]}
EAA = {"aggregators": ["EAA"]}
HELD_OUT = {name: {**PAPER["partitions"][name], "held_out": 0.1} for name in ("iid", "noniid")}


def parsed(models: Any, grid: list[str] | None = None, **top: Any) -> Settings:
    config = {**copy.deepcopy(PAPER), "models": models, **top}
    config["grid"]["models"] = grid or [*map(str, models)]
    return Settings.parse(config)


def test_a_row_for_each_value_in_the_place_of_the_entry() -> None:
    settings = parsed({"LR": {"base": "FEDAVG", "sweep": RATES}}, ["FED", "LR", "FVBA"])
    assert settings.trained() == ["FED", "LR-0.001", "LR-0.01", "FVBA"]
    assert [settings.method(row).training("svhn").learning_rate for row in ("LR-0.001", "LR-0.01")] == [0.001, 0.01]
    assert settings.rows_of("LR") == {
        row: {"training.learning_rate": float(row[3:])} for row in ("LR-0.001", "LR-0.01")
    }
    assert Settings.parse(json.loads(settings.canonical())) == settings
    plan = Plan(settings)
    assert plan.rows[:3] == [("FED", "none"), ("LR-0.001", "none"), ("LR-0.01", "none")]
    assert plan.shown_rows == plan.rows
    assert len([cell for cell in plan.cells if cell.model == "LR-0.01"]) == 3 * 2 * 2 * 5
    # A row is the method that somebody would have written by hand.
    by_hand = parsed({"LR-0.01": {"training": {"learning_rate": 0.01}}})
    cell = next(cell for cell in plan.cells if cell.model == "LR-0.01")
    assert Plan(by_hand).job(cell) == plan.job(cell)


def test_several_settings_are_combined() -> None:
    sweep = {"training.learning_rate": [0.1, 0.2], "posterior.prior.standard_deviation": [1, 10]}
    settings = parsed({"GRID": {"base": "FVBWA", "sweep": sweep}})
    assert settings.trained() == ["GRID-0.1-1", "GRID-0.1-10", "GRID-0.2-1", "GRID-0.2-10"]
    method = settings.method("GRID-0.2-10")
    assert method.posterior is not None
    assert (method.training("svhn").learning_rate, method.posterior.prior.standard_deviation) == (0.2, 10)
    assert method.aggregators == ("EAA", "GAA", "AALV", "PPA", "CF")


@pytest.mark.parametrize(
    ("entry", "sweep", "rows"),
    [
        ({}, {"weights": ["equal", "data"]}, ["M-equal", "M-data"]),
        ({}, {"training.clip_norm": [None, 1.5]}, ["M-null", "M-1.5"]),
        ({}, {"network": ["lenet", "mlp"]}, ["M-lenet", "M-mlp"]),
        ({"algorithm": "fedprox"}, {"algorithm.mu": [0, 1e-05]}, ["M-0", "M-1e-05"]),
        ({}, {"algorithm": ["fedprox", "fedavg"]}, ["M-fedprox", "M-fedavg"]),
        ({"posterior": "ivon", **EAA}, {"optimiser.rescale": [True, False]}, ["M-true", "M-false"]),
        (EAA, {"posterior": ["ivon", "swag"], "posterior.prior.mean": [0, 1]}, ["M-ivon-0", "M-ivon-1", "M-swag-0"]),
        ({"base": "FVBA"}, {"posterior.log_variance.initial": [-9, -5]}, ["M--9", "M--5"]),
    ],
)
def test_any_setting_of_a_method_may_be_swept(entry: Any, sweep: Any, rows: list[str]) -> None:
    settings = parsed({"M": {**entry, "sweep": sweep}})
    assert settings.trained()[: len(rows)] == rows
    assert Settings.parse(json.loads(settings.canonical())) == settings


def test_a_sweep_wins_over_data_set_method_and_optimiser() -> None:
    settings = parsed(
        {
            "ADAM": {
                "training": {"learning_rate": 0.3, "batch_size": 8},
                "optimiser": {"name": "adam", "learning_rate": 0.4, "weight_decay": 0.5},
                "sweep": RATES,
            }
        },
        datasets={"cifar10": {"training": {"learning_rate": 0.2, "local_epochs": 7}}},
    )
    training = settings.method("ADAM-0.001").training("cifar10")
    assert (training.learning_rate, training.batch_size, training.local_epochs, training.weight_decay) == (
        0.001,
        8,
        7,
        0.5,
    )
    assert settings.method("ADAM-0.001").optimiser["name"] == "adam"


def test_a_base_gives_its_sweep_and_null_takes_it_away() -> None:
    models = {
        "LR": {"sweep": RATES},
        "PROX": {"base": "LR", "algorithm": "fedprox", "sweep": {"choose": "nll"}},
        "ONE": {"base": "LR", "sweep": None, "training": {"learning_rate": 0.5}},
    }
    settings = parsed(models, partitions=HELD_OUT)
    assert settings.trained() == ["LR-0.001", "LR-0.01", "PROX-0.001", "PROX-0.01", "ONE"]
    assert settings.method("PROX-0.01").algorithm["name"] == "fedprox"
    plan = Plan(settings)
    assert plan.shown_rows == [("LR-0.001", "none"), ("LR-0.01", "none"), ("PROX", "none"), ("ONE", "none")]
    assert plan.choosing == {"PROX": "nll"}


def test_what_is_shown_counts_where_the_cells_are_the_same() -> None:
    """Another metric to choose by trains nothing, and is another results.csv."""
    plans = [
        Plan(parsed({"LR": {"sweep": {**RATES, "choose": metric}}}, partitions=HELD_OUT)) for metric in ("nll", "ece")
    ]
    assert plans[0].job(plans[0].cells[0]) == plans[1].job(plans[1].cells[0])
    assert plans[0].identity() != plans[1].identity()
    assert plans[0].summary_job("bflp.results.merged") != plans[1].summary_job("bflp.results.merged")


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({}, ["models.M.sweep", "must name a setting"]),
        ({"choose": "nll"}, ["models.M.sweep", "must name a setting"]),
        ({"training.learning_rate": []}, ["models.M.sweep.training.learning_rate", "must not be an empty list"]),
        ({"training.learning_rate": 0.1}, ["models.M.sweep.training.learning_rate", "must be a list (is 0.1)"]),
        ({"training.learning_rate": [0.1, 0.10]}, ["models.M.sweep.training.learning_rate", "0.1 more than once"]),
        ({"training.learning_rate": [0.1, "1e-1"]}, ["M-0.1 and M-1e-1 would be trained in the same way"]),
        ({"training.learning_rate": [0.1, -5]}, ["row 'M--5': training.learning_rate: must be greater than 0"]),
        ({"training.learnin_rate": [1]}, ["row 'M-1': training.learnin_rate", "did you mean 'learning_rate'?"]),
        ({"trainin.learning_rate": [1]}, ["models.M.sweep", "'trainin' - did you mean 'training'?"]),
        ({"learning_rate": [1]}, ["models.M.sweep", "unknown 'learning_rate'", "known: weights, posterior, training"]),
        ({"base": ["FED", "FEDAVG"]}, ["models.M.sweep", "unknown 'base'"]),
        ({"training": [1]}, ["row 'M-1': training: must be a mapping"]),
        ({"training.learning_rate.x": [1]}, ["row 'M-1': training.learning_rate"]),
        ({"algorithm.mu": [1]}, ["row 'M-1': algorithm.mu: unknown key"]),
        ({"algorithm": ["fedprx"]}, ["row 'M-fedprx': algorithm.name", "did you mean 'fedprox'?"]),
        ({"optimiser.betas": [[0.9, 0.99]]}, ["row 'M-[0.9, 0.99]'", "may hold only letters"]),
        ({"weights": ["a b"]}, ["row 'M-a b'", "may hold only letters"]),
        # Weights that are single numbers have no prior.
        ({"optimiser": ["adam"], "training.momentum": [0, 0.5]}, ["M-adam-0 and M-adam-0.5 would be trained in"]),
        ({"posterior.prior.mean": [0, 1]}, ["M-0 and M-1 would be trained in the same way"]),
        ({"weights": ["x", "x-y"], "training.momentum": ["y-z", "z"]}, ["the row 'M-x-y-z'"]),
        ({**RATES, "choose": "brier"}, ["models.M.sweep.choose: unknown 'brier'", "known: accuracy, ece, nll"]),
        ({**RATES, "choose": "acuracy"}, ["models.M.sweep.choose", "did you mean 'accuracy'?"]),
        ({**RATES, "choose": "nll"}, ["models.M.sweep.choose", "set partitions.iid.held_out"]),
        (3, ["models.M.sweep", "must be a mapping"]),
        ([0.1], ["models.M.sweep", "must be a mapping"]),
    ],
)
def test_wrong_sweeps_are_refused_in_one_line(sweep: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed({"M": {"base": "FEDAVG", "sweep": sweep}})
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("models", "top", "words"),
    [
        ({"M": {"sweep": RATES}, "M-0.01": {}}, {}, ["models.M.sweep", "'M-0.01' has the name of another method"]),
        (
            {"M": {"sweep": {"weights": ["equal", "data"]}}, "M-data": {"sweep": RATES}},
            {},
            ["models.M.sweep", "'M-data' has the name of another method"],
        ),
        (
            {"M": {"sweep": {"training.momentum": [0.1]}}, "N": {"base": "M-0.1"}},
            {},
            ["models.N.base", "unknown 'M-0.1'"],
        ),
        (
            {"M": {"sweep": {**RATES, "choose": "nll"}}},
            {"partitions": {**HELD_OUT, "noniid": PAPER["partitions"]["noniid"]}},
            ["models.M.sweep.choose", "partitions.noniid.held_out"],
        ),
        (
            {"M": {"sweep": {"weights": ["equal", "data"], "choose": "nll"}}},
            {"partitions": HELD_OUT},
            ["models.M.sweep.choose", "the same weights and rules"],
        ),
        (
            {"M": {"sweep": {"posterior": ["none", "swag"], "choose": "nll"}}},
            {"partitions": HELD_OUT},
            ["models.M.sweep.choose", "the same weights and rules"],
        ),
        (
            {"M": {"algorithm": "scaffold", "sweep": {"optimiser.name": ["sgd", "adam"]}}},
            {},
            ["models.M-adam: scaffold goes with optimiser sgd only"],
        ),
    ],
)
def test_sweeps_that_do_not_fit_the_rest(models: Any, top: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(models, **top)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_single_row_is_not_a_name_of_the_grid() -> None:
    with pytest.raises(ConfigError, match=r"grid\.models: unknown 'M-0\.01'"):
        parsed({"M": {"sweep": RATES}}, ["M-0.01"])
