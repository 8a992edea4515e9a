"""The figures: one module per kind, each a function from a `Block` of results (or a table) to a matplotlib figure.

Only the modules that draw import matplotlib, and they are imported when a figure is drawn: the Snakefile reads the
names of the figures from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bflp.reporting.figures.block import Block
from bflp.settings.schema import VARIATIONAL_MODELS, Settings

FORMATS = ("pdf", "svg")


@dataclass(frozen=True)
class Kind:
    """A kind of figure. variational: whether it needs models with posteriors."""

    name: str
    title: str
    variational: bool = False


KINDS = (
    Kind("learning_curves", "Learning curves"),
    Kind("reliability", "Reliability diagrams"),
    Kind("spread", "Spread over rounds", variational=True),
    Kind("accuracy_ece", "Accuracy against ECE"),
    Kind("label_counts", "Clients' label counts"),
)


def kinds(settings: Settings) -> list[Kind]:
    """The figures of each block of a grid."""
    variational = any(model in VARIATIONAL_MODELS for model in settings.grid.models)
    return [kind for kind in KINDS if variational or not kind.variational]


def draw(kind: str, block: Block) -> Any:
    """The figure of a kind for a block of results."""
    from bflp.reporting.figures import accuracy_ece, label_counts, learning_curves, reliability, spread

    draws: dict[str, Callable[[Block], Any]] = {
        "learning_curves": learning_curves.draw,
        "reliability": reliability.draw,
        "spread": spread.draw,
        "accuracy_ece": accuracy_ece.draw,
        "label_counts": label_counts.draw,
    }
    return draws[kind](block)


def draw_round_time(measured: Sequence[Mapping[str, str]]) -> Any:
    """The figure of the lines of a round_time.csv."""
    from bflp.reporting.figures import round_time

    return round_time.draw(measured)


def save(figure: Any, path: Path) -> None:
    """Write a figure as `path`.pdf and `path`.svg, and close it."""
    from bflp.reporting.figures import style

    style.save(figure, path, FORMATS)
