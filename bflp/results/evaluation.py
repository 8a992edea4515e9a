"""The evaluation of a cell's final model, typed: a file of its own, made again without training."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from bflp.results.result import CellNames, Count, Fingerprint, Hash, Number, Open, Part


class EvaluationData(Part):
    """sha256 of what was read."""

    dataset: Hash
    out_of_distribution: Hash | None
    partition: Hash


class EvaluationEnvironment(Open):
    """Where it was made."""

    torch: str
    device: str


class Reliability(Part):
    """Per confidence bin: samples, how many of them are right, and the sum of their confidences."""

    counts: list[Count]
    correct: list[Count]
    confidence: list[Number]


class Evaluation(Part):
    """final: metric -> value; class_accuracy: per label, in % (null: the test set lacks it); clients: a list per metric
    (null without data), and summaries; all null: diverged. predictions: sha256 of their file, null where they were not
    kept."""

    cell: CellNames
    model_sha256: Hash
    settings: dict[str, Any]
    fingerprint: Fingerprint
    data: EvaluationData
    environment: EvaluationEnvironment
    final: dict[str, Number | None] | None
    reliability: Reliability | None
    confusion: list[list[Count]] | None
    class_accuracy: list[Number | None] | None = None
    clients: dict[str, list[Number | None] | Number] | None
    predictions: Hash | None = None

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Evaluation:
        if self.final is None or self.reliability is None:
            if not (self.final is None and self.reliability is None and self.clients is None):
                raise ValueError("final, reliability, clients: all or none")
            return self
        bins, parts = self.settings.get("ece_bins"), self.reliability
        if not len(parts.counts) == len(parts.correct) == len(parts.confidence) == bins:
            raise ValueError(f"reliability: must have {bins} bins")
        if any(correct > count for correct, count in zip(parts.correct, parts.counts, strict=True)):
            raise ValueError("reliability.correct: exceeds counts")
        accuracy = 100 * sum(parts.correct) / max(1, sum(parts.counts))
        if abs(accuracy - (self.final["accuracy"] or 0.0)) > 1e-6:
            raise ValueError("reliability: is of another accuracy")
        return self

    def metric(self, name: str) -> float | None:
        """A metric of the final model by the name that tables use; None where it is not there."""
        if self.final is None or self.clients is None:
            return None
        value = self.clients.get(name.removeprefix("clients_")) if name.startswith("clients_") else self.final.get(name)
        return value if not isinstance(value, list) else None
