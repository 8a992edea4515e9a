"""Methods, the entries of `models`: what a row of the tables is trained with. The paper's four are there already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from bflp import algorithms, networks
from bflp.settings.algorithms import algorithm_module
from bflp.settings.explain import nearest, require, shown, wrong
from bflp.settings.read import laid
from bflp.settings.sections import DatasetSettings, Network, PosteriorSettings, Training
from bflp.settings.values import (
    Name,
    NonNegativeFloat,
    PositiveFloat,
    Section,
    ShareBelowOne,
    Some,
    as_text,
    by_name,
    checked,
    checked_path,
    chosen_by,
    neutral,
    once,
    spelt_out,
)

if TYPE_CHECKING:
    from bflp.settings.schema import Settings


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
    """Whether the Hessian starts where the server's variance puts it, and not afresh in each round; not with GAA, CF
    and PRODUCT, which make that smaller from round to round."""


KINDS = get_args(Posterior.model_fields["kind"].annotation)
OPTIMISERS: dict[str, type[Section]] = {"sgd": Sgd, "adam": Adam, "ivon": Ivon}
# What of `training` they do not read, so that it concerns no cell of theirs.
UNREAD = {"adam": ("momentum",), "ivon": ("momentum", "weight_decay")}
# Rules whose variance is about that of a client divided by the number of clients.
NARROWING = ("GAA", "CF", "PRODUCT")


def _optimiser(value: Any) -> Any:
    mapping = spelt_out(value, "name", "sgd")
    return OPTIMISERS[chosen_by(mapping, "name", OPTIMISERS)[0]].model_validate(mapping)


def _algorithm(value: Any) -> Any:
    if isinstance(value, Mapping) and "file" in value:
        if "name" in value:
            raise ValueError("has `name` and `file`: give one of them")
        rest = {key: part for key, part in value.items() if key != "file"}
        chosen = {"file": checked_path(value["file"])}
        if not isinstance(chosen["file"], str):
            raise wrong(f"must be a path (is {shown(chosen['file'])})", "file")
        if not Path(chosen["file"]).is_file():
            raise wrong(f"there is no file {chosen['file']}", "file")
    else:
        name, rest = chosen_by(spelt_out(value, "name", "fedavg"), "name", algorithms.names())
        chosen = {"name": name}
    return {**chosen, **checked(getattr(algorithm_module(chosen), "Settings", None), rest)}


Algorithm = Annotated[dict[str, Any], BeforeValidator(_algorithm, json_schema_input_type=str | dict[str, Any])]
Optimiser = Annotated[Sgd | Adam | Ivon, BeforeValidator(_optimiser, json_schema_input_type=str | Sgd | Adam | Ivon)]
PosteriorOrKind = Annotated[
    Posterior, BeforeValidator(lambda given: spelt_out(given, "kind"), json_schema_input_type=str | Posterior)
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
    aggregators: Annotated[list[Name], AfterValidator(once)] | None = None
    """The rules of this method; null: those of its algorithm (pfedbayes: AALV), else the grid's."""
    sweep: Sweep | None = None
    """Instead of one row, one for each value of a setting, which wins over all else that sets it."""


_PAPER = {
    "FED": {"weights": "equal", "posterior": "none"},
    "FEDAVG": {"weights": "data", "posterior": "none"},
    "FVBA": {"weights": "equal", "posterior": "variational"},
    "FVBWA": {"weights": "data", "posterior": "variational"},
}
TAGS = {"posterior": "kind", "optimiser": "name", "algorithm": "name", "network": "name"}


def with_bases(value: Any) -> Any:
    """The paper's methods and those that people add, each laid over its base."""
    if not isinstance(value, Mapping):
        return value
    methods = laid(_PAPER, by_name(value))

    def resolved(name: Any, above: tuple[Any, ...] = ()) -> Any:
        if not isinstance(methods[name], Mapping):
            return methods[name]
        method = {key: spelt_out(part, TAGS[key]) if key in TAGS else part for key, part in methods[name].items()}
        base = as_text(method.get("base"))
        if base is None:
            return method
        if base not in list(methods):
            others = [other for other in methods if other != name]
            listed = ", ".join(map(str, others))
            raise wrong(f"unknown {shown(base)}{nearest(base, others)} (known: {listed})", name, "base")
        if base in (*above, name):
            raise wrong(f"goes round in a circle: {' -> '.join(map(str, (*above, name, base)))}", name, "base")
        below = resolved(base, (*above, name))
        return laid(below, method) if isinstance(below, Mapping) else method

    found = {name: resolved(name) for name in methods}
    for method in found.values():
        posterior = method.get("posterior") if isinstance(method, dict) else None
        if isinstance(posterior, Mapping) and posterior.get("kind") == "ivon":
            method["optimiser"] = spelt_out(method.get("optimiser", {}), "name", "ivon")
    return found


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
        """Local training on a data set: top level, data set, method, optimiser, each laid over those before; 0 what the
        optimiser does not read (`UNREAD`)."""
        sections = self._settings.datasets.get(dataset, DatasetSettings()).training, self._entry.training
        layers = [section.model_dump(exclude_unset=True) for section in sections if section]
        layers.append(self._entry.optimiser.model_dump(include=set(Training.model_fields), exclude_none=True))
        layers.append(dict.fromkeys(UNREAD.get(self.optimiser["name"], ()), 0.0))
        chosen = self._settings.training.model_copy(update={key: layer[key] for layer in layers for key in layer})
        return chosen if chosen.stack is None or self._stacks(dataset) else chosen.model_copy(update={"stack": None})

    def _stacks(self, dataset: str) -> bool:
        """Whether its clients can be trained at once (bflp.engine.stack)."""
        posterior, algorithm = self.posterior, algorithm_module(self.algorithm)
        if (posterior and posterior.kind != "variational") or self.optimiser["name"] != "sgd":
            return False
        weights = posterior.variational or "dense" if posterior else "none"
        return networks.is_fast(self.network(dataset), weights) and not hasattr(algorithm, "local")

    def network(self, dataset: str) -> dict[str, Any]:
        """The network for a data set: the method's, else the data set's, else the top level's."""
        of_dataset = self._settings.datasets.get(dataset, DatasetSettings()).network
        return self._entry.network or of_dataset or self._settings.network
