"""The settings as typed, validated models: names, units, ranges and defaults stand here and nowhere else.

`Settings.parse` turns the mapping of a config file into a `Settings`, or raises `ConfigError` with one line for all
mistakes. Unknown keys are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_type_hints

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bflp import aggregators, algorithms
from bflp.aggregators import Rule
from bflp.datasets import registry
from bflp.engine import evaluators
from bflp.engine.metrics.registry import names, on_demand
from bflp.engine.predictions import CURVES
from bflp.errors import ConfigError
from bflp.files import canonical_json
from bflp.settings.explain import explained, nearest, one_line, require, shown, wrong
from bflp.settings.networks import checked_network
from bflp.settings.read import laid, overlaid, read_file
from bflp.settings.rules import algorithm_module, load_rule
from bflp.settings.sweeps import Values, nested, rows

# Braces are Snakemake's wildcards; control characters and quotes only ever come from mistakes.
_BAD_IN_PATH = re.compile(r"[{}\x00-\x1f\"'`$\\*?]")


def _not_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def _text(value: Any) -> Any:
    """Numbers as texts: 10 and "10" are one name."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _name(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a name; put it in quotes")
    text = _text(value)
    if isinstance(text, str) and (not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{,99}", text) or ".." in text):
        raise ValueError(
            f"the name {shown(text)} may hold only letters, digits and . _ + - (at most 100) and must begin with a "
            "letter or digit"
        )
    return text


def _by_name(value: Any) -> Any:
    """A mapping with texts as keys; what stands there as a number and as a text merges."""
    if not isinstance(value, Mapping):
        return value
    result: dict[Any, Any] = {}
    for key, entry in value.items():
        result = laid(result, {_text(key): entry})
    return result


def _once(values: list[Any]) -> list[Any]:
    twice = sorted({str(value) for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"lists {', '.join(twice)} more than once")
    return values


def _path(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise ValueError("must be a path, not empty")
    if _BAD_IN_PATH.search(value):
        raise ValueError("must be a path without braces, quotes, wildcards, '$', backslashes or control characters")
    if value.startswith(("~", "-")):
        raise ValueError("must be a path that does not begin with '~' (it is not expanded) or '-'")
    try:
        parts = value.encode().split(b"/")
    except UnicodeEncodeError:
        raise ValueError("must be a path of characters that file names can have") from None
    if len(value) > 1000 or max(map(len, parts)) > 200:
        raise ValueError("must be a shorter path: at most 1000 characters, and 200 bytes between two slashes")
    # Without doubled or trailing slashes: file names are compared as text.
    return str(Path(value))


Value = TypeVar("Value")
_NUMBER = BeforeValidator(_not_boolean)
PositiveInt = Annotated[int, Field(gt=0, lt=2**31), _NUMBER]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**31), _NUMBER]
Seed = Annotated[int, Field(ge=0, lt=2**32), _NUMBER]
AnyFloat = Annotated[float, _NUMBER]
PositiveFloat = Annotated[float, Field(gt=0), _NUMBER]
NonNegativeFloat = Annotated[float, Field(ge=0), _NUMBER]
Share = Annotated[float, Field(ge=0, le=1), _NUMBER]
PositiveShare = Annotated[float, Field(gt=0, le=1), _NUMBER]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1), _NUMBER]
PathText = Annotated[str, BeforeValidator(_path)]
Name = Annotated[str, BeforeValidator(_name, json_schema_input_type=str | float)]
ByName = Annotated[dict[Name, Value], BeforeValidator(_by_name)]
Some = Annotated[list[Value], Field(min_length=1), AfterValidator(_once)]


class Section(BaseModel):
    """A part of the settings; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, value: Any, handler: pydantic.ModelWrapValidatorHandler[Any]) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            raise explained(error, cls.model_fields) from None


def neutral(value: Any) -> Any:
    """A field that was added later: with this value all is as before, and `identity` leaves it out."""
    return Field(default=value, json_schema_extra={"neutral": value})


def identity(section: BaseModel) -> dict[str, Any]:
    """The section as JSON, without fields at their neutral value: settings that mean the same give the same."""
    result = section.model_dump(mode="json")
    for key, about in type(section).model_fields.items():
        value, extra = getattr(section, key), about.json_schema_extra
        if isinstance(value, BaseModel):
            result[key] = identity(value)
        if isinstance(extra, dict) and "neutral" in extra and value == extra["neutral"]:
            del result[key]
    return result


@cache
def _own(settings: type | None) -> type[Section]:
    """The section for a dataclass of settings, without those that every rule has."""
    model: dict[str, Any] = {}
    if settings is not None:
        hints, plain = get_type_hints(settings, include_extras=True), get_type_hints(settings)
        shared = {own.name for own in fields(aggregators.AggregationSettings)}
        for own in (own for own in fields(settings) if own.name not in shared):
            hint = Annotated[hints[own.name], _NUMBER] if plain[own.name] in (int, float) else hints[own.name]
            model[own.name] = (hint, ... if own.default is MISSING else own.default)
    return pydantic.create_model("Own", __base__=Section, **model)


def checked(settings: type | None, given: Any) -> dict[str, Any]:
    """The settings that an algorithm or a rule has of its own, as given or by default.

    settings: their dataclass, whose fields may be `Annotated`; None: there are none. Raises ValidationError.
    """
    return _own(settings).model_validate(given).model_dump(mode="json")


def _spelt_out(value: Any, tag: str, default: str | None = None) -> Any:
    """The mapping that a name alone stands for; default: the tag of a mapping that has none."""
    if isinstance(value, str):
        return {tag: value}
    return {tag: default, **value} if default and isinstance(value, Mapping) else value


def _chosen(value: Any, tag: str, known: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """What a mapping's tag names, and its other keys."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping (is {shown(value)})")
    known, rest = list(known), dict(value)
    name = rest.pop(tag, None)
    if name not in known:
        what = "is missing" if name is None else f"unknown {shown(name)}{nearest(name, known)}"
        raise wrong(f"{what} (known: {', '.join(known)})", tag)
    return name, rest


class Grid(Section):
    """What to run: the cells are all combinations; methods without a posterior have no aggregator."""

    datasets: Some[Name]
    """Names of data sets."""
    partitions: Some[Name]
    """Names of entries of `partitions`."""
    clients: Some[Name]
    """Names of entries of `setups`."""
    models: Some[Name]
    """FED, FEDAVG, FVBA, FVBWA, or names of entries of `models`."""
    aggregators: Annotated[list[Name], AfterValidator(_once)] = []
    """Rules for Gaussian posteriors: EAA, GAA, AALV, PPA, CF, other files in bflp/aggregators, your own."""
    seeds: Some[Seed]
    """Partition, initial model, client draws, shuffling and noise follow from the seed."""


class Augment(Section):
    """Augmentation of training images, drawn afresh for each image in each epoch."""

    crop_padding: Annotated[int, Field(ge=0, le=15), _NUMBER] = 0
    """Reflect-pad by this many pixels, then crop to the old size at random; 0: off."""
    flip_probability: Share = 0.0
    """Probability of a horizontal flip."""


class Training(Section):
    """Local training: a fresh optimiser each round, data reshuffled each epoch."""

    local_epochs: PositiveInt = 10
    """Epochs over a client's own data per round."""
    batch_size: PositiveInt = 64
    """Samples per step; the last batch may be smaller."""
    learning_rate: PositiveFloat = 0.01
    """Step size."""
    momentum: ShareBelowOne = 0.9
    """Momentum of SGD."""
    weight_decay: NonNegativeFloat = 1e-5
    """L2 penalty on every trainable tensor."""
    learning_rate_decay: PositiveShare = neutral(1.0)
    """Factor on the learning rate after each round; 1: none."""
    clip_norm: PositiveFloat | None = neutral(None)
    """Largest norm of a step's gradient; null: no clipping."""


def _network(value: Any) -> Any:
    mapping = _spelt_out(value, "name")
    if not isinstance(mapping, Mapping):
        raise ValueError(f"must be a mapping (is {shown(value)})")
    return checked_network(mapping)


Network = Annotated[dict[str, Any], BeforeValidator(_network, json_schema_input_type=str | dict[str, Any])]


class DatasetSettings(Section):
    """What differs from the built-in data set of this name, or a data set of your own."""

    source: PathText | None = None
    """An .npz file with train_images, train_labels, test_images, test_labels."""
    augment: Augment | None = None
    """Training augmentation; cifar10 and cifar100 pad by 4 and flip unless told otherwise."""
    training: Training | None = None
    """What differs from the top-level `training`."""
    network: Network | None = None
    """Instead of the top-level `network`."""
    out_of_distribution: Name | None = None
    """Instead of `evaluation.out_of_distribution`; null: none."""


class Strategy(Section):
    """A way to split a data set over clients."""

    strategy: str
    seed: Seed | None = neutral(None)
    """Seed of the partition alone; null: the cell's seed."""
    held_out: ShareBelowOne = neutral(0.0)
    """Share of each client's samples that is kept from training, and measured with the curves."""


class Iid(Strategy):
    """A random permutation cut into equal parts."""

    strategy: Literal["iid"]


class Dirichlet(Strategy):
    """Per label, Dirichlet(alpha) shares over the clients; redrawn until every client has `min_samples`."""

    strategy: Literal["dirichlet"]
    alpha: PositiveFloat
    """Concentration: small is uneven, large tends to iid."""
    min_samples: NonNegativeInt = 10
    """The fewest samples that a client may hold."""


class Labels(Strategy):
    """A fixed number of labels per client; each label's samples are shared equally by the clients that hold it."""

    strategy: Literal["labels"]
    labels_per_client: PositiveInt


class Quantity(Strategy):
    """Labels as in iid, but client sizes follow Dirichlet(alpha); redrawn until every client has `min_samples`."""

    strategy: Literal["quantity"]
    alpha: PositiveFloat
    min_samples: NonNegativeInt = 10


class Natural(Strategy):
    """As the source says: its `train_clients` hold the client of each training sample."""

    strategy: Literal["natural"]


class File(Strategy):
    """As a file of your own says: an .npz with `indices` and `offsets`, or a .py with a function `split`."""

    strategy: Literal["file"]
    file: PathText


STRATEGIES: dict[str, type[Strategy]] = {
    **{"iid": Iid, "dirichlet": Dirichlet, "labels": Labels, "quantity": Quantity},
    **{"natural": Natural, "file": File},
}


def _strategy(value: Any) -> Any:
    return STRATEGIES[_chosen(value, "strategy", STRATEGIES)[0]].model_validate(value)


if TYPE_CHECKING:
    PartitionSettings = Strategy
else:
    PartitionSettings = Annotated[Union[tuple(STRATEGIES.values())], BeforeValidator(_strategy)]  # noqa: UP007


class Setup(Section):
    """How many clients there are, and how many of them train how often."""

    clients: PositiveInt
    """Number of clients; a set-up whose name is a number need not say it."""
    fraction: PositiveShare
    """Share of the clients drawn each round, rounded to at least one client."""
    rounds: PositiveInt
    """Communication rounds."""


def _with_clients(value: Any) -> Any:
    value = _by_name(value)
    for name, setup in value.items() if isinstance(value, dict) else ():
        if isinstance(setup, Mapping) and re.fullmatch(r"[0-9]{1,20}", str(name)):
            value[name] = {"clients": int(name), **setup}
            if str(value[name]["clients"]) != str(int(name)):
                raise wrong(f"{shown(value[name]['clients'])} contradicts the set-up's name", name, "clients")
    return value


class Prior(Section):
    """The Gaussian prior of every variational weight."""

    mean: AnyFloat = 0.0
    # Beyond these, variances leave what float32 can hold.
    standard_deviation: Annotated[float, Field(ge=1e-6, le=1e6), _NUMBER] = 1.0


class LogVariance(Section):
    """The log variances of the variational weights."""

    initial: AnyFloat = -9.0
    """Mean of the initial values (their standard deviation is 0.001)."""
    bounds: tuple[AnyFloat, AnyFloat] = (-8.0, 8.0)
    """Lowest and highest value in use."""
    enforce: Literal["clamp", "project"] = "clamp"
    """clamp: values are clamped where they are used, and get no gradient outside the bounds (as in the paper's
    program); project: values are put into the bounds after each step, and always get a gradient."""

    @model_validator(mode="after")
    def _in_order(self) -> LogVariance:
        if not self.bounds[0] < self.bounds[1]:
            raise ValueError("bounds must be [lowest, highest]")
        if self.bounds[0] < -30 or self.bounds[1] > 30:
            raise ValueError("bounds must lie within [-30, 30]: beyond it variances leave what float32 can hold")
        return self


class PosteriorSettings(Section):
    """The Gaussian posteriors of methods that have one."""

    prior: Prior = Prior()
    log_variance: LogVariance = LogVariance()


class Posterior(PosteriorSettings):
    """What differs from the top-level `posterior`; a kind alone stands for `{kind: ...}`."""

    kind: Literal["none", "variational", "ivon", "laplace", "swag"] = "variational"
    """How a client gets its Gaussian: by variational layers as in the paper, IVON's Hessian, a Laplace approximation at
    the end of local training, or the iterates of SWAG; none: weights are single numbers."""
    variational: Annotated[str, Field(pattern=r"^(dense|all|last:[1-9]\d{0,2})$")] | None = neutral(None)
    """Which weights of variational layers are Gaussian: `dense` (also null), `all`, or `last:N`, the last N layers; the
    other kinds have all."""

    @model_validator(mode="after")
    def _has_all(self) -> Posterior:
        if self.kind != "variational" and self.variational not in (None, "all"):
            raise ValueError(f"variational: with kind {self.kind} all weights have a posterior")
        return self


class Sgd(Section):
    """SGD with momentum. What is given here wins over `training`."""

    name: Literal["sgd"]
    learning_rate: PositiveFloat | None = None
    momentum: ShareBelowOne | None = None
    weight_decay: NonNegativeFloat | None = None


class Adam(Section):
    """Adam (Kingma and Ba 2015, arXiv 1412.6980). What is given here wins over `training`."""

    name: Literal["adam"]
    learning_rate: PositiveFloat | None = None
    weight_decay: NonNegativeFloat | None = None
    betas: tuple[ShareBelowOne, ShareBelowOne] = (0.9, 0.999)
    """Decay of the means of gradients and of their squares."""
    epsilon: PositiveFloat = 1e-8


class Ivon(Section):
    """IVON, of posteriors of that kind. What is given here wins over `training`."""

    name: Literal["ivon"]
    learning_rate: PositiveFloat | None = None
    betas: tuple[ShareBelowOne, ShareBelowOne] = (0.9, 0.99999)
    """Decay of the means of gradients and of the Hessian."""
    initial_hessian: PositiveFloat = 1.0
    """Where the Hessian starts in the first round."""
    temperature: PositiveFloat = 1.0
    """Below 1 the posterior is colder than Bayes' rule makes it."""
    rescale: bool = True
    """Whether the rate is multiplied by the initial Hessian and the prior's share."""
    carry: bool = True
    """Whether the Hessian starts where the server's variance puts it, and not afresh in each round."""


OPTIMISERS: dict[str, type[Section]] = {"sgd": Sgd, "adam": Adam, "ivon": Ivon}


def _optimiser(value: Any) -> Any:
    mapping = _spelt_out(value, "name", "sgd")
    return OPTIMISERS[_chosen(mapping, "name", OPTIMISERS)[0]].model_validate(mapping)


def _algorithm(value: Any) -> Any:
    if isinstance(value, Mapping) and "file" in value:
        rest = {key: part for key, part in value.items() if key != "file"}
        chosen = {"file": _path(value["file"])}
    else:
        name, rest = _chosen(_spelt_out(value, "name", "fedavg"), "name", algorithms.names())
        chosen = {"name": name}
    return {**chosen, **checked(getattr(algorithm_module(chosen), "Settings", None), rest)}


Algorithm = Annotated[dict[str, Any], BeforeValidator(_algorithm, json_schema_input_type=str | dict[str, Any])]
Optimiser = Annotated[Sgd | Adam | Ivon, BeforeValidator(_optimiser, json_schema_input_type=str | Sgd | Adam | Ivon)]
PosteriorOrKind = Annotated[
    Posterior, BeforeValidator(lambda given: _spelt_out(given, "kind"), json_schema_input_type=str | Posterior)
]


class Sweep(Section):
    """A row for each value of a setting of the method, as in `training.learning_rate: [0.01, 0.1]`; where there are
    several settings, for each combination."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Some[Any]]

    choose: Literal["accuracy", "ece", "nll"] | None = None
    """Show one row instead: the value that is best by this metric on held-out samples."""

    @property
    def settings(self) -> dict[str, list[Any]]:
        """Dotted setting -> its values."""
        return dict(self.__pydantic_extra__)

    @model_validator(mode="after")
    def _names_settings_of_methods(self) -> Sweep:
        if not self.settings:
            raise ValueError("must name a setting, such as training.learning_rate: [0.01, 0.1]")
        known = [key for key in MethodSettings.model_fields if key not in ("base", "sweep")]
        require("", [setting.partition(".")[0] for setting in self.settings], known)
        return self


class MethodSettings(Section):
    """How a row of the tables is trained. FED, FEDAVG, FVBA and FVBWA are there without being written."""

    base: Name | None = None
    """Another method; the keys here lie over its keys."""
    weights: Literal["equal", "data"] = "data"
    """Whether clients weigh the same or by data size."""
    posterior: PosteriorOrKind = Posterior(kind="none")
    training: Training | None = None
    """What differs from the data set's and the top-level `training`."""
    optimiser: Optimiser = Sgd(name="sgd")
    """A name, or a mapping with its settings, which win over `training`."""
    algorithm: Algorithm = {"name": "fedavg"}
    """The name of a file in bflp/algorithms, or a mapping with its settings; or `{file: ...}` for one of your own."""
    network: Network | None = None
    """Instead of the data set's and the top-level `network`."""
    aggregators: Annotated[list[Name], AfterValidator(_once)] | None = None
    """The rules of this method; null: the grid's."""
    sweep: Sweep | None = None
    """Instead of one row, one for each value of a setting, which wins over all else that sets it."""


_PAPER = {
    "FED": {"weights": "equal", "posterior": "none"},
    "FEDAVG": {"weights": "data", "posterior": "none"},
    "FVBA": {"weights": "equal", "posterior": "variational"},
    "FVBWA": {"weights": "data", "posterior": "variational"},
}
_TAGS = {"posterior": "kind", "optimiser": "name", "algorithm": "name", "network": "name"}


def _with_bases(value: Any) -> Any:
    """The paper's methods and those that people add, each laid over its base."""
    if not isinstance(value, Mapping):
        return value
    methods = laid(_PAPER, _by_name(value))

    def resolved(name: Any, above: tuple[Any, ...] = ()) -> Any:
        if not isinstance(methods[name], Mapping):
            return methods[name]
        method = {key: _spelt_out(part, _TAGS[key]) if key in _TAGS else part for key, part in methods[name].items()}
        base = _text(method.get("base"))
        if base is None:
            return method
        if base not in list(methods):
            listed = ", ".join(map(str, methods))
            raise wrong(f"unknown {shown(base)}{nearest(base, methods)} (known: {listed})", name, "base")
        if base in (*above, name):
            raise wrong(f"goes round in a circle: {' -> '.join(map(str, (*above, name, base)))}", name, "base")
        below = resolved(base, (*above, name))
        return laid(below, method) if isinstance(below, Mapping) else method

    found = {name: resolved(name) for name in methods}
    for method in found.values():
        if isinstance(method, dict) and _tag(method.get("posterior"), "kind") == "ivon":
            method["optimiser"] = _spelt_out(method.get("optimiser", {}), "name", "ivon")
    return found


def _tag(value: Any, tag: str) -> Any:
    return value.get(tag) if isinstance(value, Mapping) else None


class RuleSettings(Section):
    """Settings that an aggregation rule has of its own, such as PPA's `population`."""

    model_config = ConfigDict(extra="allow")

    file: PathText | None = None
    """For a rule of your own that lies outside the package: its Python file."""


class Ensemble(Section):
    """The clients of the last round as an ensemble; needs `keep_clients`."""

    beta: Share | Literal["fitted"]
    """Between the mixture (0) and the product (1) of their predictions; fitted: by the NLL of held-out samples."""


class Personal(Section):
    """A model for each client of the last round, between its own and the global one; needs `keep_clients`."""

    local_share: Share
    """Weight of its own, lambda / (1 + lambda): 0 is the global model, 1 its own."""
    rule: Literal["W2", "RKL", "FKL"] = "W2"
    """The barycentre of the two posteriors."""


class FinalEvaluation(Section):
    """The evaluation of the final model; a change of it trains nothing."""

    monte_carlo_samples: PositiveInt | None = None
    """null: as many as after each round."""
    temperature: bool = False
    """Temperature scaling, fitted on the samples that `held_out` of a partition keeps from training."""

    ensemble: Ensemble | None = None
    """The clients of the last round as an ensemble; null: not measured."""
    personal: Personal | None = None
    """A model for each client of the last round; null: not measured."""

    def asked(self) -> dict[str, Any]:
        """The evaluators (bflp.engine.evaluators) that are asked for, by name, with their settings."""
        given = {name: getattr(self, name) for name in evaluators.names()}
        return {
            name: value.model_dump(mode="json") if isinstance(value, Section) else value
            for name, value in given.items()
            if value not in (None, False)
        }


class Evaluation(Section):
    """Evaluation of the global model on the whole test set."""

    monte_carlo_samples: PositiveInt = 10
    """Forward passes that are averaged for methods with a posterior."""
    ece_bins: PositiveInt = 100
    """Equal-width confidence bins of the expected calibration error."""
    every: PositiveInt = 1
    """Evaluate after every so many rounds; always after the last."""
    out_of_distribution: Name | None = None
    """A second data set of the same image shape: the AUROC of telling its test images by the entropy."""
    final: FinalEvaluation = FinalEvaluation()
    keep_predictions: bool = False
    """Keep the final model's predictions for the test images."""


class RoundTime(Section):
    """What the target `round_time` measures: local training time per round, for every row of the tables."""

    dataset: Name = "cifar10"
    """A data set, built in or of `datasets`; not given and not in the grid: the grid's first."""
    partition: Name = "iid"
    """An entry of `partitions`; likewise."""
    clients: Name = "100"
    """An entry of `setups`; likewise."""
    processes: Some[PositiveInt] = [1, 5, 10]
    """Numbers of worker processes."""
    rounds: PositiveInt = 5
    """Rounds to measure, after one to warm up."""


def _metric(value: Any) -> Any:
    require("", [value], names())
    return value


class Tables(Section):
    """What the result tables show."""

    metrics: Some[Annotated[str, BeforeValidator(_metric), Field(json_schema_extra={"enum": names()})]] = [
        *("accuracy", "ece", "nll")
    ]
    """The columns for each data set."""
    at_round: PositiveInt | None = None
    """Numbers after this round, instead of the final model's, in the tables of results and the statistics."""
    average_last: PositiveInt | None = None
    """Means over the last so many rounds, instead of the final model's numbers."""
    target_accuracy: Annotated[float, Field(gt=0, le=100), _NUMBER] | None = neutral(None)
    """In %: a table `target` of the rounds and megabytes that each row takes to this accuracy; null: none."""


class StatisticsSettings(Section):
    """What rows are compared with, and which differences do not matter."""

    reference: str | None = None
    """A model, or a model and its aggregator, such as FVBWA EAA; null: FEDAVG where the grid has it, else the first."""
    equivalence: Annotated[dict[Annotated[str, BeforeValidator(_metric)], PositiveFloat], Field(min_length=1)] = {
        **{"accuracy": 0.5, "ece": 0.5, "nll": 0.01}
    }
    """The metrics that are compared, each with the largest difference that does not matter, in its unit."""


@dataclass(frozen=True)
class Method:
    """A row of the tables, with all that its entry, its base and the top level say.

    posterior: None where weights are single numbers. algorithm, optimiser: name and settings; an optimiser's learning
    rate, momentum and weight decay stand in `training`. aggregators: none for a cell whose aggregator is "none".
    """

    name: str
    weights: Literal["equal", "data"]
    posterior: Posterior | None
    algorithm: dict[str, Any]
    optimiser: dict[str, Any]
    aggregators: tuple[str, ...]
    _entry: MethodSettings = field(repr=False)
    _settings: Settings = field(repr=False)

    def training(self, dataset: str) -> Training:
        """Local training on a data set: top level, data set, method, optimiser, each laid over those before."""
        sections = self._settings.datasets.get(dataset, DatasetSettings()).training, self._entry.training
        layers = [section.model_dump(exclude_unset=True) for section in sections if section]
        layers.append(self._entry.optimiser.model_dump(include=set(Training.model_fields), exclude_none=True))
        return self._settings.training.model_copy(update={key: layer[key] for layer in layers for key in layer})

    def network(self, dataset: str) -> dict[str, Any]:
        """The network for a data set: the method's, else the data set's, else the top level's."""
        of_dataset = self._settings.datasets.get(dataset, DatasetSettings()).network
        return self._entry.network or of_dataset or self._settings.network


class Settings(Section):
    """All settings of a grid of experiments."""

    grid: Grid
    datasets: ByName[DatasetSettings] = {}
    """What differs from the built-in data sets; your own."""
    partitions: ByName[PartitionSettings]
    """Ways to split a data set over clients."""
    setups: Annotated[dict[Name, Setup], BeforeValidator(_with_clients)]
    """Numbers of clients and rounds, by name; a name that is a number is the number of clients."""
    models: Annotated[dict[Name, MethodSettings], BeforeValidator(_with_bases)] = Field({}, validate_default=True)
    """Methods beside FED, FEDAVG, FVBA and FVBWA, or what differs from these."""
    network: Network = {"name": "lenet"}
    """A network's name, or a mapping with its settings."""
    training: Training = Training()
    posterior: PosteriorSettings = PosteriorSettings()
    aggregators: ByName[RuleSettings] = {}
    """Settings of aggregation rules, and rules of your own."""
    aggregation: Literal["exact", "reference"] = "exact"
    """exact: the paper's equations; reference: the arithmetic of the paper's program (floored running sums, truncated
    PPA population, unbiased PPA variance)."""
    evaluation: Evaluation = Evaluation()
    tables: Tables = Tables()
    statistics: StatisticsSettings = StatisticsSettings()
    round_time: RoundTime = RoundTime()
    checkpoint_seconds: NonNegativeFloat = 2.0
    """A running cell saves what it needs to go on after it was killed at most every so many seconds; 0: every round."""
    keep_clients: bool = False
    """Keep the models that the clients of the last round sent; switched on later, it trains cells again that ran
    without."""
    on_divergence: Literal["stop", "record"] = "stop"
    """When a loss or parameter becomes NaN or infinite: stop the cell with an error, or record it as diverged, which
    the tables then show."""
    processes: PositiveInt = 10
    """Worker processes of a cell; never changes a result."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU if there is one."""
    cells_per_gpu: PositiveInt = 1
    """How many cells may share a GPU; `--resources gpu=` is then the number of GPUs times this."""
    results_dir: PathText = "results"
    data_dir: PathText = "data"

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        grid = self.grid
        known = [*registry.BUILT_IN, *(name for name, dataset in self.datasets.items() if dataset.source)]
        source = "or give it a `source:` in `datasets`"
        rules = list(dict.fromkeys([*aggregators.names(), *self.aggregators]))
        require("datasets", self.datasets, known, source)
        require("grid.datasets", grid.datasets, known, source)
        require("grid.partitions", grid.partitions, self.partitions, "or add it to `partitions`")
        require("grid.clients", grid.clients, self.setups, "or add it to `setups`")
        require("grid.models", grid.models, self.models, "or add it to `models`")
        require("grid.aggregators", grid.aggregators, rules, "or write bflp/aggregators/<name>.py")
        for name in self.aggregators:
            self._check_rule(name)
        trained = self.trained()
        for name, entry in self.methods.items():
            self._check_algorithm(name, entry)
            require(f"models.{name}.aggregators", entry.aggregators or (), rules)
            if entry.aggregators and entry.posterior.kind == "none":
                raise ValueError(f"models.{name}.aggregators: a method without a posterior has no aggregator")
            if name in trained and self._takes_rules(entry) and not self.method(name).aggregators:
                raise ValueError(f"grid.aggregators must name at least one rule, since {name} has a posterior")
        for rule in dict.fromkeys(rule for name in trained for rule in self.method(name).aggregators):
            self.rule(rule)
        for name in grid.models:
            self._check_sweep(name)
        ood = {f"datasets.{name}": section.out_of_distribution for name, section in self.datasets.items()}
        for where, other in {"evaluation": self.evaluation.out_of_distribution, **ood}.items():
            require(f"{where}.out_of_distribution", [other] if other else (), known, source)
        self._check_out_of_distribution()
        self._check_chosen_rounds()
        self._check_evaluators()
        # The default counts as not given: the canonical text of settings, which programs parse again, has it always.
        if self.round_time != RoundTime():
            require("round_time.dataset", [self.round_time.dataset], known, source)
            require("round_time.partition", [self.round_time.partition], self.partitions, "or add it to `partitions`")
            require("round_time.clients", [self.round_time.clients], self.setups, "or add it to `setups`")
        for name in grid.datasets:
            if name in registry.BUILT_IN and not self.source(name):
                self.check_size(name, registry.BUILT_IN[name].train_size)
        return self

    def _check_rule(self, name: str) -> None:
        given, built_in = self.aggregators[name], aggregators.names()
        if given.file is None:
            require("aggregators", [name], built_in, "or give it a `file:`")
        elif not aggregators.is_rule_name(name):
            raise ValueError(f"aggregators: the name {shown(name)} must be letters, digits and _ only, not 'none'")
        elif name.lower() in [rule.lower() for rule in built_in]:
            raise ValueError(f"aggregators.{name}.file: there is a rule of this name in bflp/aggregators already")
        elif not Path(given.file).is_file():
            raise ValueError(f"aggregators.{name}.file: there is no file {given.file}")
        if given.model_extra:
            self.rule(name)

    def _check_out_of_distribution(self) -> None:
        others = {name: self.out_of_distribution(name) for name in self.grid.datasets}
        for name, other in others.items():
            ours, theirs = self._image_shape(name), self._image_shape(other or name)
            if ours and theirs and ours != theirs:
                raise ValueError(f"out_of_distribution: images of {other} are {theirs}, but those of {name} {ours}")
        if "ood_auroc" in self.tables.metrics and not any(others.values()):
            raise ValueError("tables.metrics: ood_auroc needs a data set in evaluation.out_of_distribution")

    def _check_evaluators(self) -> None:
        asked = self.evaluation.final.asked()
        for where, metrics in (("tables.metrics", self.tables.metrics), ("statistics", self.statistics.equivalence)):
            for metric in metrics:
                if (name := on_demand().get(metric)) and name not in asked:
                    raise ValueError(f"{where}: {metric} is measured on demand: set evaluation.final.{name}")
        held_out = ["temperature"] if "temperature" in asked else []
        held_out += ["ensemble.beta: fitted"] if asked.get("ensemble", {}).get("beta") == "fitted" else []
        for name in ("ensemble", "personal") if not self.keep_clients else ():
            if name in asked:
                raise ValueError(
                    f"evaluation.final.{name} needs the models of the last round's clients: set keep_clients: true, "
                    "which trains cells again that ran without"
                )
        without = [name for name in self.grid.partitions if not self.partitions[name].held_out]
        if held_out and without:
            raise ValueError(
                f"evaluation.final.{held_out[0]} needs samples that no client trains on: set "
                f"partitions.{without[0]}.held_out, such as 0.1, which trains its cells again"
            )

    def _check_chosen_rounds(self) -> None:
        tables, every = self.tables, self.evaluation.every
        given = {"at_round": tables.at_round, "average_last": tables.average_last}
        chosen = {name: number for name, number in given.items() if number is not None}
        if len(chosen) > 1:
            raise ValueError("tables: at_round and average_last exclude each other")
        for name, number in chosen.items():
            for where, metrics in (("tables.metrics", tables.metrics), ("statistics", self.statistics.equivalence)):
                if others := [metric for metric in metrics if metric not in CURVES]:
                    raise ValueError(
                        f"tables.{name}: {others[0]} ({where}) is of the final model only (use {', '.join(CURVES)})"
                    )
            for setup, rounds in ((setup, self.setups[setup].rounds) for setup in self.grid.clients):
                where = f"tables.{name}: set-up {setup}"
                if number > rounds:
                    raise ValueError(f"{where} has {rounds} rounds, not {number}")
                if name == "at_round" and number % every and number != rounds:
                    raise ValueError(f"{where} is not evaluated after round {number} (evaluation.every is {every})")
                if name == "average_last" and every > 1 and number > 1:
                    raise ValueError(
                        f"{where} is not evaluated after each of its last {number} rounds (evaluation.every is {every})"
                    )

    def _image_shape(self, dataset: str) -> str | None:
        shape = None if self.source(dataset) else getattr(registry.BUILT_IN[dataset], "image_shape", None)
        return "x".join(map(str, shape)) if shape else None

    def check_size(self, dataset: str, samples: int) -> None:
        """Raise ValueError unless a data set of so many training samples can be split as the grid says."""
        for clients in (self.setups[name].clients for name in self.grid.clients):
            have = f"are more than the {samples} training samples of {dataset}"
            if clients > samples:
                raise ValueError(f"grid.clients: {clients} clients {have}")
            for name in self.grid.partitions:
                least = getattr(self.partitions[name], "min_samples", 1)
                if clients * least > samples:
                    raise ValueError(
                        f"partitions.{name}.min_samples: {clients} clients with {least} samples each {have}"
                    )

    @classmethod
    def parse(cls, mapping: Any, files: Sequence[Path] = ()) -> Settings:
        """The settings of a config's mapping, read from `files`. Raises ConfigError, one line for all mistakes."""
        if not isinstance(mapping, Mapping):
            raise ConfigError("the config must be a mapping of settings, such as `grid: ...`")
        try:
            return cls.model_validate(mapping)
        except ValidationError as error:
            raise ConfigError(one_line(error, files)) from None

    def source(self, dataset: str) -> str | None:
        """The `source:` file of a data set; None: through torchvision."""
        return self.datasets.get(dataset, DatasetSettings()).source

    def augment(self, dataset: str) -> Augment | None:
        """The training augmentation of a data set; None: none."""
        own = self.datasets.get(dataset, DatasetSettings())
        built_in = registry.BUILT_IN.get(dataset)
        if "augment" in own.model_fields_set or built_in is None or not built_in.augment:
            return own.augment
        return Augment(**built_in.augment)

    def out_of_distribution(self, dataset: str) -> str | None:
        """The data set whose images are to be told from those of `dataset`; None: none."""
        own = self.datasets.get(dataset, DatasetSettings())
        return (own if "out_of_distribution" in own.model_fields_set else self.evaluation).out_of_distribution

    def setup(self, name: str) -> Setup:
        """A set-up by its name in the grid."""
        return self.setups[name]

    def rule(self, name: str) -> tuple[Rule, dict[str, Any]]:
        """An aggregation rule, and the settings that it has of its own, given or by default. Raises ConfigError."""
        own, file = self.aggregators.get(name, RuleSettings()), self.rule_file(name)
        try:
            rule = load_rule(name, Path(file) if file else None)
            return rule, checked(rule.settings, own.model_extra)
        except ConfigError as error:
            raise ConfigError(f"aggregators.{name}: {error}") from None
        except ValidationError as error:
            raise ConfigError(f"aggregators.{name}.{one_line(error)}") from None

    def rule_file(self, name: str) -> str | None:
        """The Python file of a rule outside the package; None: it is one of the package."""
        return self.aggregators.get(name, RuleSettings()).file

    @cached_property
    def methods(self) -> dict[str, MethodSettings]:
        """The entries of `models` without a sweep, and the rows of those with one."""
        given = {name: entry.model_dump(exclude_unset=True) for name, entry in self.models.items()}
        found = {name: entry for name, entry in self.models.items() if entry.sweep is None}
        for name, entry in self.models.items():
            for row, values in rows(name, entry.sweep.settings) if entry.sweep else ():
                where = f"models.{name}.sweep: the row {shown(row)}"
                if row in given or row in found:
                    raise ValueError(f"{where} has the name of another method")
                method = {"base": name, "sweep": None, **self._swept(name, values)}
                try:
                    _name(row)
                    found[row] = MethodSettings.model_validate(_with_bases({**given, row: method})[row])
                except ValueError as error:
                    text = one_line(error) if isinstance(error, ValidationError) else error
                    raise ValueError(f"{where}: {text}") from None
        return found

    def _swept(self, name: str, values: Values) -> dict[str, Any]:
        spelt = {key: _spelt_out(value, _TAGS[key]) if key in _TAGS else value for key, value in values.items()}
        # The optimiser wins over `training`, and a sweep over both.
        given = self.models[name].optimiser.model_dump(exclude_none=True)
        unset = {f"optimiser.{key}": None for key in given if f"training.{key}" in values}
        return nested({**unset, **spelt})

    def rows_of(self, name: str) -> dict[str, Values]:
        """The methods that a name in `grid.models` stands for: the rows of its sweep, with their values, or itself."""
        entry = self.models.get(name)
        return dict(rows(name, entry.sweep.settings)) if entry and entry.sweep else {name: {}}

    def trained(self) -> list[str]:
        """The methods of the grid: `grid.models` with sweeps written out."""
        return [row for name in self.grid.models for row in self.rows_of(name)]

    def chooses(self, name: str) -> str | None:
        """The metric by which a name in `grid.models` chooses one row of its sweep; None: it shows all."""
        sweep = self.models[name].sweep
        return sweep.choose if sweep else None

    def _check_sweep(self, name: str) -> None:
        methods, where = {row: self.method(row) for row in self.rows_of(name)}, f"models.{name}.sweep"
        seen: dict[str, str] = {}
        for row, method in methods.items():
            of_method = (method.weights, method.posterior, method.algorithm, method.optimiser, method.aggregators)
            of_data = [(method.training(data), method.network(data)) for data in self.grid.datasets]
            if (same := seen.setdefault(repr((of_method, of_data)), row)) != row:
                raise ValueError(f"{where}: its rows {same} and {row} would be trained in the same way")
        if self.chooses(name) is None:
            return
        for partition in self.grid.partitions:
            if not self.partitions[partition].held_out:
                raise ValueError(
                    f"{where}.choose: needs samples to choose by: set partitions.{partition}.held_out, such as 0.1"
                )
        if len({(it.weights, it.posterior is None, it.aggregators) for it in methods.values()}) > 1:
            raise ValueError(f"{where}.choose: its rows must have the same weights and rules")

    def method(self, name: str) -> Method:
        """A method of the grid by its name, that of a sweep's row included."""
        entry = self.methods[name]
        over = entry.posterior.model_dump(exclude_unset=True)
        posterior = Posterior.model_validate(laid(self.posterior.model_dump(exclude_unset=True), over))
        optimiser = entry.optimiser.model_dump(mode="json", exclude=set(Training.model_fields))
        if posterior.kind not in ("none", "variational") and "bounds" not in over.get("log_variance", {}):
            # The paper's bounds are those of its layers; other variances may be much smaller.
            log_variance = posterior.log_variance.model_copy(update={"bounds": (-30.0, 30.0)})
            posterior = posterior.model_copy(update={"log_variance": log_variance})
        usual = getattr(algorithm_module(entry.algorithm), "DEFAULT_AGGREGATORS", None)
        rules = (usual or self.grid.aggregators) if entry.aggregators is None else entry.aggregators
        return Method(
            name,
            entry.weights,
            None if posterior.kind == "none" else posterior,
            entry.algorithm,
            optimiser,
            tuple(rules if self._takes_rules(entry) else ()),
            entry,
            self,
        )

    @staticmethod
    def _takes_rules(entry: MethodSettings) -> bool:
        return entry.posterior.kind != "none" and not hasattr(algorithm_module(entry.algorithm), "server")

    def _check_algorithm(self, name: str, entry: MethodSettings) -> None:
        module, algorithm = algorithm_module(entry.algorithm), entry.algorithm.get("name", "its algorithm")
        kinds = getattr(module, "KINDS", None)
        if kinds is not None and entry.posterior.kind not in kinds:
            raise ValueError(
                f"models.{name}: {algorithm} is not defined for posterior {entry.posterior.kind} "
                f"(use {' or '.join(kinds)})"
            )
        optimisers = getattr(module, "OPTIMISERS", None)
        if optimisers is not None and entry.optimiser.name not in optimisers:
            raise ValueError(f"models.{name}: {algorithm} goes with optimiser {' or '.join(optimisers)} only")
        if (entry.posterior.kind == "ivon") != (entry.optimiser.name == "ivon"):
            raise ValueError(f"models.{name}: posterior ivon and optimiser ivon go together")
        for dataset in self.grid.datasets if hasattr(module, "refuse") and name in self.trained() else ():
            own = {key: value for key, value in entry.algorithm.items() if key not in ("name", "file")}
            refusal = module.refuse(module.Settings(**own), self.method(name).training(dataset))
            if refusal:
                raise ValueError(f"models.{name}: {algorithm}: {refusal}")
        partial = [setup for setup in self.grid.clients if self.setups[setup].fraction < 1]
        if getattr(module, "FULL_PARTICIPATION", False) and partial and name in self.trained():
            raise ValueError(
                f"models.{name}: {algorithm} needs all clients in each round, set-up {partial[0]} draws some"
            )

    def canonical(self) -> str:
        """All settings as one string: what programs of the workflow are given.

        Without defaults: for a data set's augmentation, not said and said to be null differ.
        """
        return canonical_json(self.model_dump(mode="json", exclude_unset=True))


def load(files: Iterable[Path], config: Mapping[str, Any] | None = None) -> Settings:
    """Read config files, later ones over earlier ones as `snakemake --configfile a b` does.

    config: what lies over all files, as that of `snakemake --config`.

    Raises ConfigError for a file that is missing or holds no YAML mapping, and for wrong settings.
    """
    files = list(files)
    return Settings.parse(overlaid([*map(read_file, files), config or {}]), files)
