"""What is measured of a final model on demand: one file each, found by its name, its key in `evaluation.final`.

An evaluator's file holds METRICS, the metrics that it adds by name, each (TITLE, UNIT, HIGHER_IS_BETTER, DIGITS) as in
bflp.engine.metrics, and

    evaluate(subject, asked) -> Measured

where `subject` is a `Subject` (bflp.engine.evaluation) and `asked` its settings; it measures all of METRICS. None
trains, and one that is not asked for is in no fingerprint. Settings read METRICS: importing a file imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

OF_CLIENTS = ("ensemble", "personal")  # those that need the models of the last round's clients


@dataclass(frozen=True)
class Measured:
    """final: metric -> value, None where there is nothing to measure; clients: what -> a value per client of the
    federation, None for those without one."""

    final: Mapping[str, float | None]
    clients: dict[str, list[float | None]] = field(default_factory=dict)


def names() -> list[str]:
    """All evaluators."""
    return sorted(file.stem for file in Path(__file__).parent.glob("*.py") if file.stem != "__init__")
