"""A cell's result, typed: which fields there are, their types and ranges, and what must agree.

The same models write and read the JSON; docs/results.md says what the fields mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Sums of float32 probabilities differ from 1 by rounding, and so do what is computed from them.
_ROUNDING = 1e-4

Percent = Annotated[float, Field(ge=0, le=100 + _ROUNDING, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=-_ROUNDING, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
Seconds = list[NotNegative]


class Part(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Open(BaseModel):
    """Programs may record more than the fields that are needed."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class CellNames(Part):
    """The six coordinates."""

    dataset: str
    partition: str
    clients: str
    model: str
    aggregator: str
    seed: Count


class DataHashes(Part):
    """sha256 of what the cell read."""

    dataset: Hash
    partition: Hash


class Environment(Open):
    """Where the cell ran. model_file, clients_file: sha256 of the files of the model and of the last round's clients,
    None where these were not kept."""

    python: str
    torch: str
    numpy: str
    device: str
    processes: Annotated[int, Field(gt=0)]
    resumed_at: list[Count]
    curve_ece_bins: Annotated[int, Field(gt=0)]
    code: dict[str, str] = {}
    model_file: Hash | None = None
    clients_file: Hash | None = None


class Diverged(Part):
    """Where training diverged, and how. client: None for the global model."""

    round: Annotated[int, Field(gt=0)]
    client: Count | None
    reason: str


class HeldOut(Part):
    """Metrics on all clients' held-out samples together."""

    accuracy: Percent
    ece: Percent
    nll: NotNegative


class Round(Part):
    """An evaluated round. held_out: left out where no samples are."""

    round: Annotated[int, Field(gt=0)]
    accuracy: Percent
    ece: Percent
    nll: NotNegative
    spread: NotNegative | None
    held_out: HeldOut | None = Field(default=None, exclude_if=lambda value: value is None)


class Timing(Open):
    """Of this run."""

    train_seconds: Seconds
    aggregation_seconds: Seconds
    evaluation_seconds: Seconds
    startup_seconds: NotNegative
    total_seconds: NotNegative


class Traffic(Part):
    """Bytes that the clients of each round send and receive, all together."""

    up_bytes: list[Count]
    down_bytes: list[Count]


class NetworkRecord(Part):
    """The network's inputs and where its parameters lie in the flat vector, in this order; gaussian: those weights that
    have a mean and a log variance. input_shape: [C, H, W] or [F]."""

    input_shape: list[Count]
    labels: Count
    tensors: dict[str, list[Count]]
    gaussian: list[str]


class Result(Part):
    """All of it. model_sha256: of the final model's flat vector; traffic, network: null in results of earlier
    versions."""

    cell: CellNames
    settings: dict[str, Any]
    fingerprint: Fingerprint
    data: DataHashes
    model_sha256: Hash
    environment: Environment
    diverged: Diverged | None
    rounds: list[Round]
    timing: Timing
    traffic: Traffic | None = None
    network: NetworkRecord | None = None

    @property
    def rounds_done(self) -> int:
        """Communication rounds before the end, or before it diverged."""
        return self._rounds_wanted() if self.diverged is None else self.diverged.round - 1

    def megabytes(self, round_: int) -> float | None:
        """What all clients had sent and received by the end of a round, in 10^6 bytes; None where it is not known."""
        if self.traffic is None:
            return None
        return sum(sum(each[:round_]) for each in (self.traffic.up_bytes, self.traffic.down_bytes)) / 1e6

    def _rounds_wanted(self) -> int:
        return _setting(self.settings, "setup", "rounds")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Result:
        rounds, every = self._rounds_wanted(), _setting(self.settings, "evaluation", "every")
        done = self.rounds_done
        _require(done <= rounds and (done < rounds or not self.diverged), f"diverged.round: must be at most {rounds}")
        evaluated = [number for number in range(1, done + 1) if number % every == 0 or number == rounds]
        _require([entry.round for entry in self.rounds] == evaluated, lambda: f"rounds: must be {_shortly(evaluated)}")
        for name in ("train_seconds", "aggregation_seconds", "evaluation_seconds"):
            _require(len(getattr(self.timing, name)) == done, f"timing.{name}: must have {done} entries")
        for name, numbers in self.traffic or ():
            _require(len(numbers) == done, f"traffic.{name}: must have {done} entries")
        _require(all(number <= done for number in self.environment.resumed_at), f"resumed_at: exceeds round {done}")
        posterior = "posterior" in self.settings
        agrees = all((entry.spread is not None) == posterior for entry in self.rounds)
        _require(agrees, "spread: methods with a posterior have one, and only they")
        partition = self.settings.get("partition")
        holds_out = isinstance(partition, dict) and bool(partition.get("held_out"))
        agrees = all((entry.held_out is not None) == holds_out for entry in self.rounds)
        _require(agrees, "held_out: is there where the partition holds samples out, and only there")
        return self


def _setting(settings: dict[str, Any], section: str, name: str) -> int:
    value = settings.get(section)
    number = value.get(name) if isinstance(value, dict) else None
    if not isinstance(number, int) or number < 1:
        raise ValueError(f"settings.{section}.{name}: must be a positive whole number")
    return number


def _require(condition: bool, otherwise: str | Callable[[], str]) -> None:
    if not condition:
        raise ValueError(otherwise if isinstance(otherwise, str) else otherwise())


def _shortly(numbers: list[int]) -> str:
    return str(numbers) if len(numbers) <= 5 else f"[{numbers[0]}, {numbers[1]}, ..., {numbers[-1]}]"
