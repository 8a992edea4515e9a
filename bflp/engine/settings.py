"""What determines a cell's numbers, typed. Ranges, defaults and units stand in bflp.settings.

A job and a result hold the same as a JSON mapping, without the values that are neutral (`clip_norm: null`); the
defaults here are those and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Training:
    """Local training. stack: clients that train at once, at most; None: one after the other."""

    local_epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    learning_rate_decay: float = 1.0
    clip_norm: float | None = None
    stack: int | None = None

    def rate(self, round_: int) -> float:
        """The learning rate of a round, counted from 1."""
        return self.learning_rate * self.learning_rate_decay ** (round_ - 1)


@dataclass(frozen=True)
class PosteriorSettings:
    """The Gaussian posteriors. Log variances are natural logarithms.

    kind: how a client gets its Gaussian; variational: which weights have one, as bflp.networks.build takes it.
    """

    kind: str
    prior_mean: float
    prior_standard_deviation: float
    initial_log_variance: float
    bounds: tuple[float, float]
    enforce: Literal["clamp", "project"]
    variational: str

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> PosteriorSettings:
        """From the form that a config has."""
        prior, log_variance = mapping["prior"], mapping["log_variance"]
        low, high = log_variance["bounds"]
        return cls(
            mapping.get("kind", "variational"),
            prior["mean"],
            prior["standard_deviation"],
            log_variance["initial"],
            (low, high),
            log_variance["enforce"],
            mapping.get("variational") or ("dense" if mapping.get("kind", "variational") == "variational" else "all"),
        )


@dataclass(frozen=True)
class CellSettings:
    """One cell. clients: of the federation; fraction: of them that train in a round; weights: in aggregation.

    algorithm, network, rule: names and settings of their own; posterior: None for a deterministic method;
    monte_carlo_samples: of the evaluation after rounds.
    """

    seed: int
    clients: int
    fraction: float
    rounds: int
    weights: Literal["equal", "data"]
    training: Training
    every: int
    monte_carlo_samples: int
    augment: Mapping[str, Any] | None
    posterior: PosteriorSettings | None
    aggregator: str
    aggregation: Literal["exact", "reference"]
    rule: Mapping[str, Any] = field(default_factory=dict)
    optimiser: Mapping[str, Any] = field(default_factory=lambda: {"name": "sgd"})
    algorithm: Mapping[str, Any] = field(default_factory=lambda: {"name": "fedavg"})
    network: Mapping[str, Any] = field(default_factory=lambda: {"name": "lenet"})

    @classmethod
    def of(cls, seed: int, aggregator: str, mapping: Mapping[str, Any]) -> CellSettings:
        """From the JSON of a job or result. Raises KeyError or TypeError where that is not whole."""
        evaluation, setup, posterior = mapping["evaluation"], mapping["setup"], mapping.get("posterior")
        optional = {key: mapping[key] for key in ("rule", "algorithm", "optimiser", "network") if key in mapping}
        return cls(
            seed=seed,
            clients=setup["clients"],
            fraction=setup["fraction"],
            rounds=setup["rounds"],
            weights=mapping["weights"],
            training=_only_known(Training, mapping["training"]),
            every=evaluation["every"],
            monte_carlo_samples=evaluation.get("monte_carlo_samples", 1),
            augment=mapping["augment"],
            posterior=PosteriorSettings.of(posterior) if posterior else None,
            aggregator=aggregator,
            aggregation=mapping.get("aggregation", "exact"),
            **optional,
        )

    @property
    def sampled(self) -> bool:
        """Whether clients train plain numbers, and get the variances of all weights by other means than gradients."""
        return self.posterior is not None and self.posterior.kind != "variational"

    @property
    def active(self) -> int:
        """Clients that train in a round, where all have data."""
        return max(1, round(self.fraction * self.clients))


def _only_known(kind: type[Kind], mapping: Mapping[str, Any]) -> Kind:
    unknown = mapping.keys() - {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if unknown:
        raise KeyError(f"{', '.join(sorted(unknown))}: not known to {kind.__name__}")
    return kind(**mapping)
