"""The settings as a whole, typed and validated; sections, methods and values have modules of their own.

`Settings.parse` turns the mapping of a config file into a `Settings`, or raises `ConfigError` with one line for all
mistakes. Unknown keys are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from bflp import aggregators
from bflp.aggregators import Rule
from bflp.datasets import registry
from bflp.engine.evaluators import OF_CLIENTS
from bflp.engine.metrics.registry import on_demand
from bflp.engine.predictions import CURVES
from bflp.errors import ConfigError
from bflp.files import canonical_json
from bflp.settings.algorithms import algorithm_file, algorithm_module
from bflp.settings.explain import one_line, require, shown
from bflp.settings.methods import (
    KINDS,
    NARROWING,
    OPTIMISERS,
    TAGS,
    Ivon,
    Method,
    MethodSettings,
    Posterior,
    with_bases,
)
from bflp.settings.own_files import place_of
from bflp.settings.read import laid, overlaid, read_file, written_in
from bflp.settings.rules import load_rule
from bflp.settings.sections import (
    Augment,
    DatasetSettings,
    Evaluation,
    Grid,
    Network,
    PartitionSettings,
    PosteriorSettings,
    RoundTime,
    RuleSettings,
    Setup,
    StatisticsSettings,
    Tables,
    Training,
    with_clients,
)
from bflp.settings.sweeps import Values, nested, rows
from bflp.settings.values import (
    ByName,
    Name,
    NonNegativeFloat,
    PathText,
    PositiveInt,
    Section,
    checked,
    checked_name,
    spelt_out,
)


class Settings(Section):
    """All settings of a grid of experiments."""

    grid: Grid
    datasets: ByName[DatasetSettings] = {}
    """What differs from the built-in data sets; your own."""
    partitions: ByName[PartitionSettings]
    """Ways to split a data set over clients."""
    setups: Annotated[dict[Name, Setup], BeforeValidator(with_clients)]
    """Numbers of clients and rounds, by name; a name that is a number is the number of clients."""
    models: Annotated[dict[Name, MethodSettings], BeforeValidator(with_bases)] = Field({}, validate_default=True)
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
    """Keep the models that the clients of the last round trained; switched on later, it trains cells again that ran
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
            if entry.aggregators and not self._takes_rules(entry):
                algorithm = entry.algorithm.get("name", "its algorithm")
                raise ValueError(f"models.{name}.aggregators: {algorithm} makes the model itself and has no aggregator")
            if name in trained and self._takes_rules(entry) and not self.method(name).aggregators:
                raise ValueError(f"grid.aggregators must name at least one rule, since {name} has a posterior")
        for rule in dict.fromkeys(rule for name in trained for rule in self.method(name).aggregators):
            self.rule(rule)
        for name in grid.models:
            self._check_sweep(name)
        for name in self.datasets:
            if name.endswith((".made", ".source")):
                raise ValueError(f"datasets: a data set's name may not end as {shown(name)} does, like files beside it")
        ood = {f"datasets.{name}": section.out_of_distribution for name, section in self.datasets.items()}
        for where, other in {"evaluation": self.evaluation.out_of_distribution, **ood}.items():
            require(f"{where}.out_of_distribution", [other] if other else (), known, source)
        if "ood_auroc" in self.tables.metrics and not any(map(self.out_of_distribution, grid.datasets)):
            raise ValueError("tables.metrics: ood_auroc needs a data set in evaluation.out_of_distribution")
        self.check_shapes(self.built_in_shapes)
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

    def check_shapes(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Raise ValueError unless data sets can be augmented as the settings say, and have images of the same shape as
        those that they are to be told from.

        shapes: of one image; a data set whose shape is not known yet is passed over.
        """
        for name in self.grid.datasets:
            augment, shape = self.augment(name), shapes.get(name)
            if augment and shape:
                if len(shape) != 3:
                    raise ValueError(f"datasets.{name}.augment: is for images, a sample of {name} is a list of numbers")
                if augment.crop_padding >= min(shape[1:]):
                    raise ValueError(
                        f"datasets.{name}.augment.crop_padding: must be less than a side of the images, which are "
                        f"{shape[1]}x{shape[2]} (is {augment.crop_padding})"
                    )
            other = self.out_of_distribution(name) or name
            ours, theirs = ("x".join(map(str, shapes.get(dataset, ()))) for dataset in (name, other))
            if ours and theirs and ours != theirs:
                raise ValueError(f"out_of_distribution: images of {other} are {theirs}, but those of {name} {ours}")

    @property
    def built_in_shapes(self) -> dict[str, Sequence[int]]:
        """The shapes of the images of built-in data sets, (C, H, W)."""
        return {name: about.image_shape for name, about in registry.BUILT_IN.items() if not self.source(name)}

    def _check_evaluators(self) -> None:
        asked = self.evaluation.final.asked()
        for where, metrics in (("tables.metrics", self.tables.metrics), ("statistics", self.statistics.equivalence)):
            for metric in metrics:
                if (name := on_demand().get(metric)) and name not in asked:
                    raise ValueError(f"{where}: {metric} is measured on demand: set evaluation.final.{name}")
        held_out = ["temperature"] if "temperature" in asked else []
        held_out += ["ensemble.beta: fitted"] if asked.get("ensemble", {}).get("beta") == "fitted" else []
        for name in OF_CLIENTS if not self.keep_clients else ():
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

    def check_size(self, dataset: str, samples: int, owners: int | None = None) -> None:
        """Raise ValueError unless a data set of so many training samples can be split as the grid says.

        owners: how many clients the data say that they come from; None: they do not say it.
        """
        for name in self.grid.partitions if owners is None else ():
            if self.partitions[name].strategy == "natural":
                raise ValueError(
                    f"partitions.{name}: strategy natural needs `train_clients` in the source of {dataset}"
                )
        for clients in (self.setups[name].clients for name in self.grid.clients):
            have = f"are more than the {samples} training samples of {dataset}"
            if clients > samples:
                raise ValueError(f"grid.clients: {clients} clients {have}")
            for name in self.grid.partitions:
                if self.partitions[name].strategy == "natural" and clients != owners:
                    raise ValueError(f"partitions.{name}: {dataset} comes from {owners} clients, not {clients}")
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
            raise ConfigError(one_line(error, files, cls.model_json_schema())) from None
        except ConfigError as error:  # of a rule's file or own settings: it begins with their place
            place = written_in(files, str(error).partition(": ")[0].split("."), None)
            raise ConfigError(": ".join(filter(None, (place, str(error))))) from None

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
                    checked_name(row)
                    found[row] = MethodSettings.model_validate(with_bases({**given, row: method})[row])
                except ValueError as error:
                    text = one_line(error) if isinstance(error, ValidationError) else error
                    raise ValueError(f"{where}: {text}") from None
        return found

    def _swept(self, name: str, values: Values) -> dict[str, Any]:
        spelt = {key: spelt_out(value, TAGS[key]) if key in TAGS else value for key, value in values.items()}
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
        if posterior.variational == "dense":  # the same cells as null, which leaves it out of their settings
            posterior = posterior.model_copy(update={"variational": None})
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
        kinds, optimisers = getattr(module, "KINDS", None), getattr(module, "OPTIMISERS", None)
        for word, listed, known in (("KINDS", kinds, KINDS), ("OPTIMISERS", optimisers, OPTIMISERS)):
            if listed and not {*listed} <= {*known}:
                require(f"{place_of(algorithm_file(entry.algorithm), word)}: {word}", listed, known)
        if kinds is not None and entry.posterior.kind not in kinds:
            raise ValueError(
                f"models.{name}: {algorithm} is not defined for posterior {entry.posterior.kind} "
                f"(use {' or '.join(kinds)})"
            )
        if optimisers is not None and entry.optimiser.name not in optimisers:
            raise ValueError(f"models.{name}: {algorithm} goes with optimiser {' or '.join(optimisers)} only")
        if (entry.posterior.kind == "ivon") != (entry.optimiser.name == "ivon"):
            raise ValueError(f"models.{name}: posterior ivon and optimiser ivon go together")
        if isinstance(entry.optimiser, Ivon) and entry.optimiser.carry and name in self.trained():
            narrowing = [rule for rule in self.method(name).aggregators if rule in NARROWING]
            if narrowing:
                raise ValueError(
                    f"models.{name}.optimiser: with {' and '.join(narrowing)} the variance that IVON goes on from is "
                    "divided by the number of clients in each round, and so are its steps, until nothing moves: set "
                    "carry: false, or name other rules in aggregators"
                )
        for dataset in self.grid.datasets if hasattr(module, "refuse") and name in self.trained() else ():
            own = {key: value for key, value in entry.algorithm.items() if key not in ("name", "file")}
            given = module.Settings(**own) if hasattr(module, "Settings") else None
            refusal = module.refuse(given, self.method(name).training(dataset))
            if refusal:
                raise ValueError(f"models.{name}: {algorithm}: {refusal}")
        if self.keep_clients and not getattr(module, "TRAINS_MODELS", True) and name in self.trained():
            raise ValueError(
                f"keep_clients: what the clients of {name} ({algorithm}) train is no model by itself; run it with "
                "another config file, without keep_clients"
            )
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
