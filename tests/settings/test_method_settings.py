"""Methods: what an entry of `models` means for a data set, and what is refused."""

from __future__ import annotations

import copy
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bflp import aggregators, algorithms
from bflp.aggregators import Gaussian
from bflp.errors import ConfigError
from bflp.grid.plan import Plan
from bflp.settings.algorithms import _built_in
from bflp.settings.methods import NARROWING
from bflp.settings.rules import load_rule
from bflp.settings.schema import Settings, load

PROJECT = Path(__file__).resolve().parents[2]
PAPER: dict[str, Any] = yaml.safe_load((PROJECT / "config.yaml").read_text(encoding="utf-8"))
# Of algorithms of one's own.
LOCAL = "def local(model, server, client, facts, settings): ...\n"
DATACLASS = "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Settings:\n"


def parsed(models: Any, grid: list[str] | None = None, **top: Any) -> Settings:
    config = {**copy.deepcopy(PAPER), "models": models, **top}
    config["grid"]["models"] = grid or [*map(str, models)]
    return Settings.parse(config)


@pytest.mark.parametrize(
    ("name", "weights", "kind"),
    [
        ("FED", "equal", None),
        ("FEDAVG", "data", None),
        ("FVBA", "equal", "variational"),
        ("FVBWA", "data", "variational"),
    ],
)
def test_the_papers_methods_are_there(name: str, weights: str, kind: str | None) -> None:
    method = Settings.parse(PAPER).method(name)
    assert (method.name, method.weights) == (name, weights)
    assert (method.posterior.kind if method.posterior else None) == kind
    assert method.aggregators == (("EAA", "GAA", "AALV", "PPA", "CF") if kind else ())
    assert (method.algorithm, method.optimiser) == ({"name": "fedavg"}, {"name": "sgd"})
    assert method.network("svhn") == {"name": "lenet"}
    assert method.training("svhn").model_dump(exclude={"clip_norm", "stack"}) == {
        "local_epochs": 10,
        "batch_size": 64,
        "learning_rate": 0.01,
        "momentum": 0.9,
        "weight_decay": 1e-5,
        "learning_rate_decay": 1.0,
    }


def test_what_an_optimiser_does_not_read_concerns_none_of_its_cells() -> None:
    models: dict[str, Any] = {
        "FEDAVG": {},
        "ADAM": {"base": "FEDAVG", "optimiser": "adam"},
        "IVON": {"base": "FVBWA", "posterior": "ivon", "optimiser": {"carry": False}},
    }

    def touched(**training: float) -> set[str]:
        before, after = Plan(parsed(models)), Plan(parsed(models, training=training))
        return {cell.model for cell in before.cells if before.job(cell) != after.job(cell)}

    assert touched(momentum=0.5) == {"FEDAVG"}
    assert touched(weight_decay=0.5) == {"FEDAVG", "ADAM"}
    assert touched(learning_rate=0.5) == set(models)


def test_only_rows_that_can_be_stacked_have_a_stack() -> None:
    """The others are the cells that they are without the setting."""
    models: dict[str, Any] = {
        "FEDAVG": {},
        "FVBWA": {},
        "LAST": {"base": "FVBWA", "posterior": {"variational": "last:3"}},
        "SERVER": {"base": "FEDAVG", "algorithm": "fedadam"},
        "ALONE": {"base": "FEDAVG", "training": {"stack": None}},
        "ADAM": {"base": "FEDAVG", "optimiser": "adam"},
        "PROX": {"base": "FEDAVG", "algorithm": {"name": "fedprox", "mu": 0.1}},
        "ALL": {"base": "FVBWA", "posterior": {"variational": "all"}},
        "LAPLACE": {"base": "FVBWA", "posterior": "laplace"},
        "IVON": {"base": "FVBWA", "posterior": "ivon", "optimiser": {"carry": False}},
        "MLP": {"base": "FEDAVG", "network": "mlp"},
    }
    stacked = ["FEDAVG", "FVBWA", "LAST", "SERVER"]
    without, settings = parsed(models), parsed(models, training={"stack": 4})
    found = {name: settings.method(name).training("fmnist").stack for name in models}
    assert found == {name: 4 if name in stacked else None for name in models}
    jobs, before = ({cell: plan.job(cell) for cell in plan.cells} for plan in (Plan(settings), Plan(without)))
    assert {cell.model for cell in jobs if jobs[cell] != before[cell]} == set(stacked)
    assert {cell.model for cell in jobs} == set(models)


@pytest.mark.parametrize("rule", aggregators.names())
def test_ivon_goes_on_from_no_variance_that_shrinks_from_round_to_round(rule: str) -> None:
    """Ten clients that agree: a rule whose variance is not about theirs makes the steps of the next round shorter."""
    combine, ten = load_rule(rule), (10, 5)
    wide = Gaussian(np.zeros(5), np.zeros(5))
    further: dict[str, Any] = {"prior": wide, "previous": wide}
    given = np.full(ten, 0.3), np.full(ten, np.log(0.01)), np.full(10, 0.1), combine.settings(bounds=(-30, 30))
    found = combine(*given, np.random.default_rng(0), **{name: further[name] for name in combine.asks})
    narrows = bool((np.exp(found[1]) < 0.005).all())
    assert narrows == (rule in NARROWING) and narrows == bool((np.exp(found[1]) < 0.009).any())
    models: dict[str, Any] = {"IVON": {"base": "FVBWA", "posterior": "ivon", "aggregators": list({"RKL", rule})}}
    models["FRESH"] = {"base": "IVON", "optimiser": {"carry": False}}
    parsed(models, ["FRESH"])
    if rule in NARROWING:
        with pytest.raises(ConfigError, match=rf"models.IVON.optimiser: with {rule} the variance .* set carry: false"):
            parsed(models)
    else:
        parsed(models)


def test_keys_lie_over_those_of_the_base() -> None:
    settings = parsed(
        {
            "TWICE": {"base": "WIDE", "posterior": {"prior": {"mean": 2}}, "weights": "equal"},
            "WIDE": {"base": "FVBWA", "posterior": {"prior": {"standard_deviation": 10}}, "aggregators": ["EAA", "CF"]},
            "POINT": {"base": "WIDE", "posterior": "none", "aggregators": []},
        }
    )
    twice = settings.method("TWICE")
    assert twice.posterior is not None
    assert (twice.posterior.prior.mean, twice.posterior.prior.standard_deviation) == (2, 10)
    assert (twice.weights, twice.aggregators) == ("equal", ("EAA", "CF"))
    assert settings.method("WIDE").weights == "data"
    assert settings.method("POINT").posterior is None
    assert Settings.parse(json.loads(settings.canonical())) == settings


def test_a_posterior_lies_over_the_top_levels() -> None:
    top = {"prior": {"mean": 1}, "log_variance": {"bounds": [-5, 5], "enforce": "project"}}
    mine = {"posterior": {"log_variance": {"enforce": "clamp"}}}
    posterior = parsed({"MINE": mine}, posterior=top).method("MINE").posterior
    assert posterior is not None
    assert (posterior.kind, posterior.prior.mean) == ("variational", 1)
    assert (posterior.log_variance.bounds, posterior.log_variance.enforce) == ((-5, 5), "clamp")


def test_training_is_laid_top_level_data_set_method_optimiser() -> None:
    settings = parsed(
        {
            "ADAM": {"training": {"batch_size": 8}, "optimiser": {"name": "adam", "learning_rate": 0.001}},
            "SLOW": {"training": {"learning_rate": 0.004, "clip_norm": None}},
            "FEDAVG": {},
        },
        datasets={"cifar10": {"training": {"learning_rate": 0.02, "clip_norm": 5}}},
        training={"learning_rate": 0.03, "momentum": 0.8, "batch_size": 4},
    )

    def training(method: str, dataset: str) -> tuple[float, float, int, float | None]:
        it = settings.method(method).training(dataset)
        return it.learning_rate, it.momentum, it.batch_size, it.clip_norm

    assert training("FEDAVG", "svhn") == (0.03, 0.8, 4, None)
    assert training("FEDAVG", "cifar10") == (0.02, 0.8, 4, 5)
    assert training("SLOW", "cifar10") == (0.004, 0.8, 4, None)
    assert training("ADAM", "cifar10") == (0.001, 0, 8, 5)  # Adam reads no momentum
    assert settings.method("ADAM").optimiser == {"name": "adam", "betas": [0.9, 0.999], "epsilon": 1e-8}


def test_an_algorithm_brings_settings_and_maybe_a_server_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import Annotated\n"
        "from annotated_types import Ge\n\n@dataclass(frozen=True)\nclass Settings:\n"
        "    mu: Annotated[float, Ge(0)]\n    rate: float = 1.0\n\ndef server(*given):\n    return given[0], {}\n"
    )
    (tmp_path / "pulled.py").write_text(source, encoding="utf-8")
    (tmp_path / "_hidden.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(tmp_path)])
    monkeypatch.setattr(algorithms, "names", lambda: ["fedavg", "pulled"])
    settings = parsed({"PULLED": {"posterior": "variational", "algorithm": {"name": "pulled", "mu": 0.01}}})
    assert settings.method("PULLED").algorithm == {"name": "pulled", "mu": 0.01, "rate": 1.0}
    # Its server makes the new model, so there is nothing for a rule to do.
    assert settings.method("PULLED").aggregators == ()
    for algorithm, words in (
        ("pulled", "models.X.algorithm.mu: is missing"),
        ({"name": "pulled", "mu": -1}, "models.X.algorithm.mu: must be greater than or equal to 0 (is -1)"),
        ({"name": "pulled", "mu": True}, "models.X.algorithm.mu: must be a number"),
        ({"name": "pulled", "mu": 1, "rat": 1}, "models.X.algorithm.rat: unknown key - did you mean 'rate'?"),
    ):
        with pytest.raises(ConfigError) as caught:
            parsed({"X": {"algorithm": algorithm}})
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def local(:\n", "in_folder.py, line 1: SyntaxError"),
        ("import nowhere\n", "in_folder.py, line 1: ModuleNotFoundError"),
        ("def local(model): ...\n", "in_folder.py, line 1: `local` must be a function of (model, server,"),
        (f"KINDS = 'none'\n{LOCAL}", "in_folder.py, line 1: KINDS must be a tuple"),
        (
            f"KINDS = ('swga',)\n{LOCAL}",
            "in_folder.py, line 1: KINDS: unknown 'swga' - did you mean 'swag'? (known: none,",
        ),
        (f"OPTIMISERS = ('sdg',)\n{LOCAL}", "line 1: OPTIMISERS: unknown 'sdg' - did you mean 'sgd'? (known: sgd,"),
        ("", "an algorithm must define a function"),
    ],
)
def test_mistakes_of_an_algorithm_in_the_folder_are_one_line(
    source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a file elsewhere are."""
    (tmp_path / "in_folder.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(algorithms, "__path__", [str(tmp_path)])
    monkeypatch.setattr(algorithms, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(algorithms, "names", lambda: ["fedavg", "in_folder"])
    for name in [name for name in sys.modules if name.endswith(".in_folder")]:
        monkeypatch.delitem(sys.modules, name)
    _built_in.cache_clear()
    with pytest.raises(ConfigError) as caught:
        parsed({"X": {"algorithm": "in_folder"}})
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_dense_is_what_null_is() -> None:
    """The same cells, not trained again."""
    plans = [
        Plan(parsed({"M": {"base": "FVBWA", "posterior": {"variational": given}}})) for given in (None, "dense", "all")
    ]
    null, dense, every = ([plan.job(cell) for cell in plan.cells] for plan in plans)
    assert null == dense and not set(null) & set(every)
    with pytest.raises(ConfigError, match="with kind laplace all weights have a posterior"):
        parsed({"M": {"base": "FVBWA", "posterior": {"kind": "laplace", "variational": "dense"}}})


def test_fedavg_comes_first_and_is_there() -> None:
    assert algorithms.names()[0] == "fedavg"
    assert "fedavg" in algorithms.names()


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ({"A": {"base": "B"}, "B": {"base": "A"}}, ["models.", ".base", "circle", "A -> B"]),
        ({"A": {"base": "A"}}, ["models.A.base", "circle"]),
        ({date(2026, 1, 2): {"base": date(2026, 1, 2)}}, ["2026-01-02.base", "circle"]),
        ({"A": {"base": ["FED"]}}, ["models.A.base", "['FED']"]),
        ({"A": {"base": "FVBB"}}, ["models.A.base", "did you mean 'FVBA'", "(known: FED, FEDAVG, FVBA, FVBWA)"]),
        ({"A": {"algorithm": {"name": "fedprox", "file": "mine.py"}}}, ["models.A.algorithm: has `name` and `file`"]),
        ({"A": {"weights": "dta"}}, ["models.A.weights", "did you mean 'data'"]),
        ({"A": {"posterior": "variatonal"}}, ["models.A.posterior.kind", "did you mean 'variational'"]),
        ({"A": {"posterior": {"prior": {"standard_deviation": 0}}}}, ["models.A.posterior.prior.standard_deviation"]),
        ({"A": {"algorithm": "fedvag"}}, ["models.A.algorithm.name", "did you mean 'fedavg'"]),
        ({"A": {"algorithm": {"mu": 1}}}, ["models.A.algorithm.mu", "unknown key"]),
        ({"A": {"algorithm": 3}}, ["models.A.algorithm", "must be a mapping"]),
        ({"A": {"optimiser": "adm"}}, ["models.A.optimiser.name", "did you mean 'adam'"]),
        ({"A": {"optimiser": {"name": "adam", "momentum": 0.5}}}, ["models.A.optimiser.momentum", "unknown key"]),
        ({"A": {"optimiser": {"name": "adam", "betas": [1, 0.9]}}}, ["models.A.optimiser.betas.0", "less than 1"]),
        ({"A": {"training": {"learnign_rate": 1}}}, ["models.A.training", "did you mean 'learning_rate'"]),
        ({"A": {"network": "lenett"}}, ["models.A.network.name", "did you mean 'lenet'"]),
        ({"A": {"posterior": "variational", "aggregators": ["EEA"]}}, ["models.A.aggregators", "did you mean 'EAA'"]),
        ({"A": {"posterior": "variational", "aggregators": []}}, ["at least one rule", "A has a posterior"]),
        ({"A": {"posterior": "none", "aggregators": ["EAA"]}}, ["models.A.aggregators", "without a posterior"]),
        (
            {"A": {"posterior": "variational", "algorithm": "pvi", "aggregators": ["EAA"]}},
            ["pvi makes the model itself"],
        ),
        ({"A": {"algorithm": {"name": "fedprox", "mu": float("nan")}}}, ["models.A.algorithm.mu", "finite"]),
        ({"A": {"posterior": "variational", "algorithm": "fedsparse"}}, ["fedsparse is not defined", "(use none)"]),
        ({"A": {"algorithm": {"file": "gone.py"}}}, ["models.A.algorithm.file: there is no file gone.py"]),
        ({"A": {"algorithm": {"file": 3}}}, ["models.A.algorithm.file: must be a path (is 3)"]),
        ({"A": {"algoritm": "fedavg"}}, ["models.A.algoritm", "did you mean 'algorithm'"]),
        ({"A": 3}, ["models.A", "must be a mapping"]),
        ({"a b": {}}, ["models.a b", "letters, digits"]),
        ([], ["models", "must be a mapping"]),
    ],
)
def test_wrong_methods_are_named(models: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(models)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value


def test_an_own_algorithm_whose_clients_send_no_parameters_makes_the_model_itself(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text("\nSENDS_PARAMETERS = False\n" + LOCAL, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.py, line 2: .* a function `server` must make the model"):
        parsed({"A": {"algorithm": {"file": str(own)}}})
    own.write_text("SENDS_PARAMETERS = False\ndef server(*arguments): ...\n", encoding="utf-8")
    parsed({"A": {"algorithm": {"file": str(own)}}})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n", ": an algorithm must define a function `local`, `report` or `server`"),
        (
            "def refuse(settings, training): ...\n",
            ": an algorithm must define a function `local`, `report` or `server`",
        ),
        ("\nlocal = 3\n", ", line 2: `local` must be a function of (model, server, client, facts, settings)"),
        (
            "def server(model, reports): ...\n",
            ", line 1: `server` must be a function of (model, reports, server, facts, settings)",
        ),
        (LOCAL + "def refuse(settings): ...\n", ", line 2: `refuse` must be a function of (settings, training)"),
        (LOCAL + "KINDS = 'none'\n", ", line 2: KINDS must be a tuple of texts, such as ('none',)"),
        (LOCAL + "class Settings:\n    mu = 1\n", ", line 2: write `@dataclass(frozen=True)` above `class Settings:`"),
        (
            DATACLASS + "    name: str = 'x'\n" + LOCAL,
            ", line 3: no setting may be called `name`: in the config that is the algorithm",
        ),
        (DATACLASS + "    mu: 'Tensr' = 0\n" + LOCAL, ", line 3: NameError: name 'Tensr' is not defined"),
        ("def local(:\n", ", line 1: SyntaxError: invalid syntax"),
        ("import nothing_of_this_name\n", ", line 1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ],
)
def test_mistakes_in_an_own_algorithm_are_told_in_one_line(source: str, message: str, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(source, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        parsed({"A": {"algorithm": {"file": str(own)}}})
    assert str(caught.value) == f"{own}{message}"


def test_an_own_algorithm_may_refuse_and_have_no_settings(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(LOCAL + "def refuse(settings, training): return f'{settings}: no'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"models\.A: its algorithm: None: no$"):
        parsed({"A": {"algorithm": {"file": str(own)}}})


def test_full_participation_is_needed_where_an_algorithm_says_so(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text("FULL_PARTICIPATION = True\n" + LOCAL, encoding="utf-8")
    method = {"A": {"algorithm": {"file": str(own)}}}
    setups = PAPER["setups"]
    parsed(method, setups={name: {**setup, "fraction": 1.0} for name, setup in setups.items()})
    with pytest.raises(ConfigError, match=r"^models\.A: its algorithm needs all clients in each round, set-up"):
        parsed(method, setups={name: {**setup, "fraction": 0.5} for name, setup in setups.items()})


def test_what_is_not_a_number_is_found_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "nan.yaml"
    file.write_text("models:\n  A: {algorithm: {name: fedprox,\n    mu: .nan}}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load([PROJECT / "config.yaml", file])
    assert str(caught.value) == f"{file}, line 3: models.A.algorithm.mu: must be a finite number (is nan)"
