"""The settings as typed, validated models: names, units, ranges and defaults stand here and nowhere else.

`Settings.parse` turns the mapping of a config file into a `Settings`, or raises `ConfigError` with one line per
mistake. Unknown keys are refused.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from bflp import aggregators
from bflp.datasets import registry
from bflp.errors import ConfigError
from bflp.files import canonical_json

Model = Literal["FED", "FEDAVG", "FVBA", "FVBWA"]
TableMetric = Literal[
    "accuracy",
    "ece",
    "nll",
    "brier",
    "adaptive_ece",
    "maximum_calibration_error",
    "entropy",
    "aleatoric",
    "epistemic",
    "ood_auroc",
    "clients_accuracy_worst_decile",
    "clients_ece_worst_decile",
    "clients_nll_worst_decile",
    "clients_accuracy_gini",
    "clients_ece_gini",
    "clients_nll_gini",
]
VARIATIONAL_MODELS = ("FVBA", "FVBWA")
# Mistakes that are told at once.
MOST_MISTAKES = 20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{,99}")
# Braces are Snakemake's wildcards; control characters and quotes only ever come from mistakes.
_BAD_IN_PATH = re.compile(r"[{}\x00-\x1f\"'`$\\*?]")


def _not_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


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


PositiveInt = Annotated[int, BeforeValidator(_not_boolean), Field(gt=0, lt=2**31)]
PositiveFloat = Annotated[float, BeforeValidator(_not_boolean), Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, BeforeValidator(_not_boolean), Field(ge=0, allow_inf_nan=False)]
AnyFloat = Annotated[float, BeforeValidator(_not_boolean), Field(allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(_not_boolean), Field(ge=0, le=1, allow_inf_nan=False)]
Seed = Annotated[int, BeforeValidator(_not_boolean), Field(ge=0, lt=2**32)]
PathText = Annotated[str, BeforeValidator(_path)]


class Section(BaseModel):
    """A part of the settings; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Grid(Section):
    """What to run: the cells are all combinations, FED and FEDAVG having no aggregator."""

    datasets: list[str] = Field(min_length=1, description="Names of data sets.")
    partitions: list[str] = Field(min_length=1, description="Names of entries of `partitions`.")
    clients: list[PositiveInt] = Field(min_length=1, description="Numbers of clients, each an entry of `setups`.")
    models: list[Model] = Field(
        min_length=1,
        description="FED (clients weigh the same) and FEDAVG (by data size) are deterministic, "
        "FVBA (the same) and FVBWA (by data size) variational.",
    )
    aggregators: list[str] = Field(
        default=[],
        description="Rules for Gaussian posteriors, used by FVBA and FVBWA: EAA, GAA, AALV, PPA, CF, or your own.",
    )
    seeds: list[Seed] = Field(
        min_length=1,
        description="Partition, initial model, client draws, shuffling and noise follow from the seed.",
    )

    @model_validator(mode="after")
    def _no_duplicates(self) -> Grid:
        for key in type(self).model_fields:
            values = getattr(self, key)
            twice = sorted({str(value) for value in values if values.count(value) > 1})
            if twice:
                raise ValueError(f"{key} lists {', '.join(twice)} more than once")
        if not self.aggregators and any(model in VARIATIONAL_MODELS for model in self.models):
            raise ValueError("aggregators must name at least one rule, since FVBA or FVBWA is among the models")
        return self


class Augment(Section):
    """Augmentation of training images, drawn anew for each image in each epoch."""

    crop_padding: Annotated[int, BeforeValidator(_not_boolean), Field(ge=0, le=15)] = Field(
        default=0,
        description="Reflect-pad by this many pixels, then crop to the old size at random; 0: off.",
    )
    flip_probability: Share = Field(default=0.0, description="Probability of a horizontal flip.")


class DatasetSettings(Section):
    """What differs from the built-in data set of this name, or a data set of your own."""

    source: PathText | None = Field(
        default=None, description="An .npz file with train_images, train_labels, test_images, test_labels."
    )
    augment: Augment | None = Field(
        default=None,
        description="Training augmentation; cifar10 and cifar100 pad by 4 and flip unless told otherwise.",
    )


class Iid(Section):
    """A random permutation cut into equal parts."""

    strategy: Literal["iid"]


class Dirichlet(Section):
    """Per label, Dirichlet(alpha) shares over the clients; redrawn until every client has `min_samples`."""

    strategy: Literal["dirichlet"]
    alpha: PositiveFloat = Field(description="Concentration: small is uneven, large tends to iid.")
    min_samples: PositiveInt = Field(default=10, description="The fewest samples that a client may hold.")


class Labels(Section):
    """A fixed number of labels per client; each label's samples are shared equally by the clients that hold it."""

    strategy: Literal["labels"]
    labels_per_client: PositiveInt


class Quantity(Section):
    """Labels as in iid, but client sizes follow Dirichlet(alpha); redrawn until every client has `min_samples`."""

    strategy: Literal["quantity"]
    alpha: PositiveFloat
    min_samples: PositiveInt = 10


PartitionSettings = Annotated[Iid | Dirichlet | Labels | Quantity, Field(discriminator="strategy")]
_STRATEGIES = {"iid": Iid, "dirichlet": Dirichlet, "labels": Labels, "quantity": Quantity}


class Setup(Section):
    """How a federation of a given number of clients is run."""

    fraction: Share = Field(gt=0, description="Share of the clients drawn each round, rounded to at least one client.")
    rounds: PositiveInt = Field(description="Communication rounds.")


class Training(Section):
    """Local training: SGD with a fresh optimiser each round, reshuffled each epoch."""

    local_epochs: PositiveInt = Field(default=10, description="Epochs over a client's own data per round.")
    batch_size: PositiveInt = Field(default=64, description="Samples per step; the last batch may be smaller.")
    learning_rate: PositiveFloat = Field(default=0.01, description="Step size of SGD.")
    momentum: Share = Field(default=0.9, lt=1, description="Momentum of SGD.")
    weight_decay: NonNegativeFloat = Field(default=1e-5, description="L2 penalty on every trainable tensor.")


class Prior(Section):
    """The Gaussian prior of every variational weight."""

    mean: AnyFloat = 0.0
    # Beyond these, variances leave what float32 can hold.
    standard_deviation: Annotated[float, BeforeValidator(_not_boolean), Field(ge=1e-6, le=1e6)] = 1.0


class LogVariance(Section):
    """The log variances of the variational weights."""

    initial: AnyFloat = Field(
        default=-9.0, description="Mean of the initial values (their standard deviation is 0.001)."
    )
    bounds: tuple[AnyFloat, AnyFloat] = Field(default=(-8.0, 8.0), description="Lowest and highest value in use.")
    enforce: Literal["clamp", "project"] = Field(
        default="clamp",
        description="clamp: values are clamped where they are used, and get no gradient outside the bounds (as in the "
        "paper's program); project: values are put into the bounds after each step, and always get a gradient.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> LogVariance:
        if not self.bounds[0] < self.bounds[1]:
            raise ValueError("bounds must be [lowest, highest]")
        if self.bounds[0] < -30 or self.bounds[1] > 30:
            raise ValueError("bounds must lie within [-30, 30]: beyond it variances leave what float32 can hold")
        return self


class PosteriorSettings(Section):
    """The Gaussian posteriors of FVBA and FVBWA."""

    prior: Prior = Prior()
    log_variance: LogVariance = LogVariance()
    ppa_population: Annotated[int, BeforeValidator(_not_boolean), Field(ge=2, lt=2**31)] = Field(
        default=1000, description="Size N of the population that PPA pools."
    )


class Evaluation(Section):
    """Evaluation of the global model on the whole test set."""

    monte_carlo_samples: PositiveInt = Field(default=10, description="Forward passes averaged for FVBA and FVBWA.")
    ece_bins: PositiveInt = Field(
        default=100, description="Equal-width confidence bins of the expected calibration error."
    )
    out_of_distribution: str | None = Field(
        default=None,
        description="A second data set of the same image shape: the AUROC of telling its test images by the entropy.",
    )
    every: PositiveInt = Field(default=1, description="Evaluate after every so many rounds; always after the last.")


class RoundTime(Section):
    """What the target `round_time` measures: local training time per round, for every row of the tables."""

    dataset: str = Field(default="cifar10", description="A data set, built in or of `datasets`.")
    partition: str = Field(default="iid", description="An entry of `partitions`.")
    clients: PositiveInt = Field(default=100, description="An entry of `setups`.")
    processes: list[PositiveInt] = Field(default=[1, 5, 10], min_length=1, description="Numbers of worker processes.")
    rounds: PositiveInt = Field(default=5, description="Rounds to measure, after one to warm up.")


class Checkpoint(Section):
    """When a running cell saves what it needs to go on after it was killed: once both have passed since the last."""

    rounds: PositiveInt = Field(default=1, description="Rounds.")
    seconds: NonNegativeFloat = Field(
        default=2.0,
        description="Seconds; spares cells whose rounds are very short. Longer where saving would cost over 1% of the "
        "time, unless 0.",
    )


class Tables(Section):
    """What the result tables show."""

    metrics: list[TableMetric] = Field(
        default=["accuracy", "ece", "nll"], min_length=1, description="The columns for each data set."
    )


class Settings(Section):
    """All settings of a grid of experiments."""

    grid: Grid
    datasets: dict[str, DatasetSettings] = Field(
        default={}, description="What differs from the built-in data sets; your own."
    )
    partitions: dict[str, PartitionSettings] = Field(description="Ways to split a data set over clients, by name.")
    setups: dict[PositiveInt, Setup] = Field(description="By number of clients.")
    training: Training = Training()
    posterior: PosteriorSettings = PosteriorSettings()
    evaluation: Evaluation = Evaluation()
    tables: Tables = Tables()
    round_time: RoundTime = RoundTime()
    checkpoint: Checkpoint = Checkpoint()
    aggregation: Literal["exact", "reference"] = Field(
        default="exact",
        description="exact: the paper's equations; reference: the arithmetic of the paper's program (floored running "
        "sums, truncated PPA population, unbiased PPA variance).",
    )
    on_divergence: Literal["stop", "record"] = Field(
        default="stop",
        description="When a loss or parameter is no finite number any more: stop the cell with an error, or record it "
        "as diverged, which the tables then show.",
    )
    aggregator_files: dict[str, PathText] = Field(
        default={}, description="Your own rules that lie outside the package: name to Python file."
    )
    processes: PositiveInt = Field(default=10, description="Worker processes of a cell; never changes a result.")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: a GPU if there is one.")
    cells_per_gpu: PositiveInt = Field(
        default=1,
        description="How many cells may share a GPU; `--resources gpu=` is then the number of GPUs times this.",
    )
    results_dir: PathText = "results"
    data_dir: PathText = "data"

    @field_validator("setups", mode="before")
    @classmethod
    def _no_setup_twice(cls, value: Any) -> Any:
        # 10 and "10" are two keys to YAML.
        if isinstance(value, Mapping):
            keys = [str(key) for key in value]
            twice = sorted({key for key in keys if keys.count(key) > 1})
            if twice:
                raise ValueError(f"{', '.join(twice)} is there twice, as a number and as a text in quotes")
        return value

    @model_validator(mode="after")
    def _names_are_known(self) -> Settings:
        for section in ("datasets", "partitions"):
            for name in [*getattr(self, section), *getattr(self.grid, section)]:
                if not _NAME.fullmatch(name) or ".." in name:
                    raise ValueError(
                        f"{section}: the name {_shown(name)} may hold only letters, digits and . _ + - "
                        "(at most 100) and must begin with a letter or digit"
                    )
        own = [name for name, dataset in self.datasets.items() if dataset.source]
        _require(
            "grid.datasets",
            self.grid.datasets,
            [*registry.BUILT_IN, *own],
            "or give it a `source:` in `datasets`",
        )
        if self.evaluation.out_of_distribution is not None:
            _require(
                "evaluation.out_of_distribution",
                [self.evaluation.out_of_distribution],
                [*registry.BUILT_IN, *own],
                "or give it a `source:` in `datasets`",
            )
        # The default counts as not given: the canonical text of settings, which programs parse again, has it always.
        if self.round_time != RoundTime():
            known = [*registry.BUILT_IN, *own]
            _require("round_time.dataset", [self.round_time.dataset], known, "or give it a `source:` in `datasets`")
            _require("round_time.partition", [self.round_time.partition], self.partitions, "or add it to `partitions`")
            _require("round_time.clients", [self.round_time.clients], self.setups, "or add it to `setups`")
        for name in self.datasets:
            if name not in registry.BUILT_IN and name not in own:
                raise ValueError(
                    f"datasets.{name}: is no built-in data set and has no `source:`{_nearest(name, registry.BUILT_IN)}"
                )
        _require("grid.partitions", self.grid.partitions, self.partitions, "or add it to `partitions`")
        _require("grid.clients", self.grid.clients, self.setups, "or add it to `setups`")
        for name, file in self.aggregator_files.items():
            if not aggregators.is_rule_name(name):
                raise ValueError(
                    f"aggregator_files: the name {_shown(name)} must be letters, digits and _ only, not 'none'"
                )
            if name.lower() in (rule.lower() for rule in aggregators.built_in()):
                raise ValueError(f"aggregator_files.{name}: there is a rule of this name in bflp/aggregators already")
            if not Path(file).is_file():
                raise ValueError(f"aggregator_files.{name}: there is no file {file}")
        rules = [*aggregators.built_in(), *self.aggregator_files]
        _require("grid.aggregators", self.grid.aggregators, rules, "or write bflp/aggregators/<name>.py")
        for name in self.grid.datasets:
            if name in registry.BUILT_IN and not self.source(name):
                self.check_size(name, registry.BUILT_IN[name].train_size)
        return self

    def check_size(self, dataset: str, samples: int) -> None:
        """Raise ValueError unless a data set of so many training samples can be split as the grid says."""
        for clients in self.grid.clients:
            if clients > samples:
                raise ValueError(
                    f"grid.clients: {clients} clients are more than the {samples} training samples of {dataset}"
                )
            for name in self.grid.partitions:
                least = getattr(self.partitions[name], "min_samples", 1)
                if clients * least > samples:
                    raise ValueError(
                        f"partitions.{name}.min_samples: {clients} clients with {least} samples each are more than "
                        f"the {samples} training samples of {dataset}"
                    )

    @classmethod
    def parse(cls, mapping: Any) -> Settings:
        """The settings of a config file's mapping. Raises ConfigError, one line per mistake."""
        if not isinstance(mapping, Mapping):
            raise ConfigError("the config must be a mapping of settings, such as `grid: ...`")
        try:
            return cls.model_validate(mapping)
        except pydantic.ValidationError as error:
            mistakes = list(dict.fromkeys(_explain(detail) for detail in error.errors()))
            more = f"; and {len(mistakes) - MOST_MISTAKES} more" if len(mistakes) > MOST_MISTAKES else ""
            raise ConfigError("; ".join(mistakes[:MOST_MISTAKES]) + more) from None

    def source(self, dataset: str) -> str | None:
        """The `source:` file of a data set; None: through torchvision."""
        own = self.datasets.get(dataset)
        return own.source if own else None

    def augment(self, dataset: str) -> Augment | None:
        """The training augmentation of a data set; None: none."""
        own = self.datasets.get(dataset)
        if own is not None and "augment" in own.model_fields_set:
            return own.augment
        built_in = registry.BUILT_IN.get(dataset)
        return Augment(**built_in.augment) if built_in and built_in.augment else None

    def canonical(self) -> str:
        """All settings as one string: what programs of the workflow are given.

        Without defaults: for a data set's augmentation, not said and said to be null differ.
        """
        return canonical_json(self.model_dump(mode="json", exclude_unset=True))


def load(files: Iterable[Path]) -> Settings:
    """Read config files, later ones over earlier ones as `snakemake --configfile a b` does.

    Mappings merge, lists replace.

    Raises ConfigError for a file that is missing, is no YAML mapping, or holds wrong settings.
    """
    return Settings.parse(overlaid(map(read_file, files)))


def overlaid(mappings: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    """Config mappings laid over each other. As Snakemake does, first those over the first, then these over it."""
    base, *others = mappings
    top: dict[Any, Any] = {}
    for other in others:
        _overlay(top, other)
    _overlay(base, top)
    return base


def read_file(file: Path) -> dict[Any, Any]:
    """The mapping that a config file holds. Raises ConfigError for a file that is missing or is no YAML mapping."""
    try:
        mapping = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise ConfigError(f"there is no config file {file}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{file}{where}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(mapping, dict):
        raise ConfigError(f"{file} must hold a mapping of settings, such as `grid: ...`")
    return mapping


class _Loader(yaml.SafeLoader):
    """As YAML says, a mapping holds a key once; the safe loader alone lets the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add((key.tag, key.value) if isinstance(key, yaml.ScalarNode) else key)
        return super().construct_mapping(node, deep)


def _overlay(base: dict[Any, Any], top: dict[Any, Any]) -> None:
    for key, value in top.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _overlay(base[key], value)
        elif value != {} or key not in base:
            base[key] = value


def _require(where: str, names: Iterable[Any], known: Iterable[Any], otherwise: str) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            listed = ", ".join(map(str, known)) or "none"
            raise ValueError(f"{where}: unknown {_shown(name)}{_nearest(name, known)} (known: {listed}; {otherwise})")


def _nearest(name: Any, known: Iterable[Any]) -> str:
    if not isinstance(name, str) or len(name) > 100:
        return ""
    by_lower = {str(candidate).lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f" - did you mean {by_lower[near[0]]!r}?" if near else ""


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
_REPR.maxlevel = 2


def _shown(value: Any) -> str:
    """A value of a config as people know it, shortened: aliases of aliases can make it longer than memory."""
    try:
        return _REPR.repr(value)
    except ValueError:
        return "a number of too many digits"


def _shown_key(key: Any) -> str:
    text = str(key)
    return text if text.isprintable() and len(text) <= 80 else _shown(text)


def _explain(detail: Any) -> str:
    """One line for one of pydantic's errors."""
    place = [_shown_key(part) for part in detail["loc"]]
    if place and place[0] == "partitions":
        # A discriminated union adds the tag to the location; leave it out.
        place = [*place[:2], *place[3:]]
    if place and place[-1] == "[key]":
        place = place[:-1]
    where = ".".join(place)
    prefix = f"{where}: " if where else ""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        siblings = _keys_beside(detail["loc"])
        return f"{where}: unknown key{_nearest(detail['loc'][-1], siblings)}"
    if kind == "missing":
        return f"{where}: is missing"
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", context["expected"])
        return (
            f"{where}: unknown {_shown(detail['input'])}{_nearest(detail['input'], known)} (known: {', '.join(known)})"
        )
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tags = re.findall(r"'([^']*)'", context.get("expected_tags", "'iid', 'dirichlet', 'labels', 'quantity'"))
        tag = context.get("tag")
        if tag is None:
            return f"{where}.strategy: is missing (known: {', '.join(tags)})"
        return f"{where}.strategy: unknown {_shown(tag)}{_nearest(tag, tags)} (known: {', '.join(tags)})"
    if kind == "too_short" and context.get("actual_length") == 0:
        return f"{where}: must not be an empty list"
    if kind == "value_error":
        return f"{prefix}{context['error']}"
    given = "empty" if detail["input"] is None else _shown(detail["input"])
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{prefix}must be a mapping (is {given})"
    if kind in ("list_type", "tuple_type"):
        return f"{prefix}must be a list (is {given})"
    if kind in ("too_short", "too_long"):
        return f"{prefix}must be a list of {context.get('min_length', context.get('max_length'))} (is {given})"
    message = detail["msg"].replace("Input should be", "must be")
    return f"{prefix}{message[0].lower()}{message[1:]} (is {given})"


def _keys_beside(location: tuple[Any, ...]) -> list[str]:
    """The keys that are known where an unknown one stands."""
    annotation: Any = Settings
    for part in location[:-1]:
        fields = getattr(annotation, "model_fields", None)
        if fields is not None and part in fields:
            annotation = fields[part].annotation
        elif location[0] == "partitions" and part in _STRATEGIES:
            annotation = _STRATEGIES[part]
        for option in getattr(annotation, "__args__", ()):
            if isinstance(option, type) and issubclass(option, BaseModel):
                annotation = option
    return list(getattr(annotation, "model_fields", {}))
