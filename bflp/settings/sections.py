"""The sections of a config file but for methods, which have a module of their own: names, units, ranges, defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from bflp.engine import evaluators
from bflp.engine.metrics.registry import METRICS, names
from bflp.settings.explain import require, shown, wrong
from bflp.settings.networks import checked_network
from bflp.settings.values import (
    NUMBER,
    AnyFloat,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PathText,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
    Section,
    Seed,
    Share,
    ShareBelowOne,
    Some,
    by_name,
    chosen_by,
    neutral,
    once,
    spelt_out,
)


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
    aggregators: Annotated[list[Name], AfterValidator(once)] = []
    """Rules for Gaussian posteriors: EAA, GAA, AALV, PPA, CF, other files in bflp/aggregators, your own."""
    seeds: Some[Seed]
    """Partition, initial model, client draws, shuffling and noise follow from the seed."""


class Augment(Section):
    """Augmentation of training images, drawn afresh for each image in each epoch."""

    crop_padding: Annotated[int, Field(ge=0, le=15), NUMBER] = 0
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
    stack: PositiveInt | None = neutral(None)
    """Clients of a round that train at once, at most; null: one after the other. For GPUs: a step of all takes as many
    operations as that of one. Sums are rounded otherwise, so it makes other cells. Only the hand-written LeNet with SGD
    and without an algorithm that changes local training has it; other rows train as with null."""


def _network(value: Any) -> Any:
    mapping = spelt_out(value, "name")
    if not isinstance(mapping, Mapping):
        raise ValueError(f"must be a mapping (is {shown(value)})")
    return checked_network(mapping)


Network = Annotated[dict[str, Any], BeforeValidator(_network, json_schema_input_type=str | dict[str, Any])]


class DatasetSettings(Section):
    """What differs from the built-in data set of this name, or a data set of your own."""

    source: PathText | None = None
    """An .npz file with train_images, train_labels, test_images, test_labels (or features instead of images)."""
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
    return STRATEGIES[chosen_by(value, "strategy", STRATEGIES)[0]].model_validate(value)


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


def with_clients(value: Any) -> Any:
    value = by_name(value)
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
    standard_deviation: Annotated[float, Field(ge=1e-6, le=1e6), NUMBER] = 1.0


class LogVariance(Section):
    """The log variances of the variational weights."""

    initial: AnyFloat = -9.0
    """Mean of the initial values (their standard deviation is 0.001)."""
    bounds: tuple[AnyFloat, AnyFloat] = (-8.0, 8.0)
    """Lowest and highest value in use. Those of posteriors of kind ivon, laplace and swag are [-30, 30] unless the
    method itself has others."""
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


class RuleSettings(Section):
    """Settings that an aggregation rule has of its own, such as PPA's `population`."""

    model_config = ConfigDict(extra="allow")

    file: PathText | None = None
    """For a rule of your own that lies outside the package: its Python file."""


def _share_or_fitted(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        raise ValueError(f"must be a number from 0 to 1, or fitted (is {shown(value)})") from None


class Ensemble(Section):
    """The clients of the last round as an ensemble; needs `keep_clients`."""

    beta: Annotated[Share | Literal["fitted"], WrapValidator(_share_or_fitted)]
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


def _compared(value: Any) -> Any:
    if METRICS[_metric(value)].higher_is_better is None:
        raise ValueError("no row can be better by it: neither more nor less of it is better")
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
    target_accuracy: Annotated[float, Field(gt=0, le=100), NUMBER] | None = neutral(None)
    """In %: a table `target` of the rounds and megabytes that each row takes to this accuracy; null: none."""
    mark_differences: bool = neutral(False)
    """In the tables of results, mark with † where the 95% interval of the difference to the row `statistics.reference`,
    paired by seed, excludes 0."""


class StatisticsSettings(Section):
    """What rows are compared with, and which differences do not matter."""

    reference: str | None = None
    """A model, or a model and its aggregator, such as FVBWA EAA; null: FEDAVG where the grid has it, else the first."""
    equivalence: Annotated[dict[Annotated[str, BeforeValidator(_compared)], PositiveFloat], Field(min_length=1)] = {
        **{"accuracy": 0.5, "ece": 0.5, "nll": 0.01}
    }
    """The metrics that are compared, each with the largest difference that does not matter, in its unit; only those of
    which more or less is better."""
