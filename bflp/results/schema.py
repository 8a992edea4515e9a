"""The JSON of a cell as typed, validated models: which fields there are, their types and ranges, and what must agree.

docs/results.md says what the fields mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field, model_validator

# Sums of float32 probabilities differ from 1 by rounding, and so do what is computed from them.
_ROUNDING = 1e-4

Percent = Annotated[float, Field(ge=0, le=100 + _ROUNDING, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=-_ROUNDING, allow_inf_nan=False)]
Gini = Annotated[float, Field(ge=-_ROUNDING, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Seconds = list[NotNegative]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CellNames(_Part):
    """The six coordinates."""

    dataset: str
    partition: str
    clients: Annotated[int, Field(gt=0)]
    model: Literal["FED", "FEDAVG", "FVBA", "FVBWA"]
    aggregator: str
    seed: Count


class DataHashes(_Part):
    """sha256 of what the cell read."""

    dataset: Hash
    out_of_distribution: Hash | None
    partition: Hash


class Environment(_Part):
    """Where the cell ran; programs may record more."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    python: str
    torch: str
    numpy: str
    device: str
    processes: Annotated[int, Field(gt=0)]
    resumed_at: list[Count]
    checksum: Hash


class Diverged(_Part):
    """Where training diverged, and how."""

    round: Annotated[int, Field(gt=0)]
    client: Count | None
    reason: str


class Metrics(_Part):
    """Of one evaluation."""

    accuracy: Percent
    ece: Percent
    nll: NotNegative
    spread: NotNegative | None


class Round(Metrics):
    """An evaluated round."""

    round: Annotated[int, Field(gt=0)]


class Final(Metrics):
    """Of the final model."""

    brier: Annotated[float, Field(ge=0, le=2 + _ROUNDING, allow_inf_nan=False)]
    adaptive_ece: Percent
    maximum_calibration_error: Percent
    entropy: NotNegative
    aleatoric: NotNegative
    epistemic: NotNegative
    ood_auroc: Percent | None


class Reliability(_Part):
    """Per confidence bin."""

    counts: list[Count]
    correct: list[Count]
    confidence: list[NotNegative]


class Clients(_Part):
    """Per client."""

    accuracy: list[Percent]
    accuracy_worst_decile: Percent
    accuracy_gini: Gini
    ece: list[Percent]
    ece_worst_decile: Percent
    ece_gini: Gini
    nll: list[NotNegative]
    nll_worst_decile: NotNegative
    nll_gini: Number


class Timing(_Part):
    """Of this run; programs may record more."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    train_seconds: Seconds
    aggregation_seconds: Seconds
    evaluation_seconds: Seconds
    startup_seconds: NotNegative
    total_seconds: NotNegative


class Result(_Part):
    """All of it."""

    cell: CellNames
    settings: dict[str, Any]
    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    data: DataHashes
    model_sha256: Hash
    environment: Environment
    diverged: Diverged | None
    rounds: list[Round]
    final: Final | None
    reliability: Reliability | None
    clients: Clients | None
    timing: Timing

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Result:
        rounds, every = _setting(self.settings, "setup", "rounds"), _setting(self.settings, "evaluation", "every")
        done = rounds if self.diverged is None else self.diverged.round - 1
        evaluated = [number for number in range(1, done + 1) if number % every == 0 or number == rounds]
        _require([entry.round for entry in self.rounds] == evaluated, f"rounds: must be {_shortly(evaluated)}")
        for name in ("train_seconds", "aggregation_seconds", "evaluation_seconds"):
            _require(len(getattr(self.timing, name)) == done, f"timing.{name}: must have {done} entries")
        _require(all(number <= done for number in self.environment.resumed_at), f"resumed_at: exceeds round {done}")
        variational = self.cell.model in ("FVBA", "FVBWA")
        for place in [*self.rounds, *([self.final] if self.final else [])]:
            _require((place.spread is not None) == variational, "spread: only variational models have one")
        if self.diverged is not None:
            _require(done < rounds, f"diverged.round: must be at most {rounds}")
            parts = (self.final, self.reliability, self.clients)
            _require(parts == (None, None, None), "final, reliability, clients: must be null, since it diverged")
        else:
            self._final_agrees()
        return self

    def _final_agrees(self) -> None:
        if self.final is None or self.reliability is None or self.clients is None:
            raise ValueError("final, reliability, clients: must not be null, since it did not diverge")
        for name in Metrics.model_fields:
            last = getattr(self.rounds[-1], name)
            _require(getattr(self.final, name) == last, f"final.{name}: must be that of the last round, {last}")
        bins = _setting(self.settings, "evaluation", "ece_bins")
        counts, correct, confidence = self.reliability.counts, self.reliability.correct, self.reliability.confidence
        _require(len(counts) == len(correct) == len(confidence) == bins, f"reliability: must have {bins} bins")
        _require(all(c <= n for c, n in zip(correct, counts, strict=True)), "reliability.correct: exceeds counts")
        accuracy = 100 * sum(correct) / max(1, sum(counts))
        _require(math.isclose(accuracy, self.final.accuracy, abs_tol=1e-6), "reliability: is of another accuracy")
        for name in ("accuracy", "ece", "nll"):
            length = len(getattr(self.clients, name))
            _require(length == self.cell.clients, f"clients.{name}: must have {self.cell.clients} entries")


def check(result: Any) -> list[str]:
    """What is wrong with the form of a result, one line each; nothing when all is right."""
    try:
        Result.model_validate(result)
    except pydantic.ValidationError as error:
        return [_explain(detail) for detail in error.errors(include_url=False)]
    return []


def _setting(settings: Mapping[str, Any], section: str, name: str) -> int:
    value = settings.get(section)
    number = value.get(name) if isinstance(value, dict) else None
    if not isinstance(number, int) or number < 1:
        raise ValueError(f"settings.{section}.{name}: must be a positive whole number")
    return number


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


def _shortly(numbers: list[int]) -> str:
    return str(numbers) if len(numbers) <= 5 else f"[{numbers[0]}, {numbers[1]}, ..., {numbers[-1]}]"


def _explain(detail: Any) -> str:
    where = ".".join(map(str, detail["loc"]))
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if detail["type"] == "missing":
        return f"{where}: is missing"
    if detail["type"] == "extra_forbidden":
        return f"{where}: unknown field"
    message = detail["msg"].replace("Input should be", "must be")
    return f"{where}: {message[0].lower()}{message[1:]}"
