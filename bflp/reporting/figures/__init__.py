"""The figures: one module each, named as in FIGURES, whose `draw` makes a matplotlib figure of a `Block` of results;
beside them round_time, of its own table.

A new figure is a module here and a line in FIGURES. The modules that draw import matplotlib, and they are imported when
a figure is drawn: the Snakefile reads the names of the figures from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bflp.grid.plan import Plan
    from bflp.reporting.figures.block import Block


@dataclass(frozen=True)
class Figure:
    """What the report calls a figure of a block, and whether it needs a model with a posterior, or a sweep."""

    title: str
    needs_posterior: bool = False
    needs_sweep: bool = False


FIGURES = {
    "learning_curves": Figure("Learning curves"),
    "reliability": Figure("Reliability diagrams"),
    "spread": Figure("Spread over rounds", needs_posterior=True),
    "accuracy_ece": Figure("Accuracy against ECE"),
    "label_counts": Figure("Clients' label counts"),
    "sweep": Figure("Metrics against what is swept", needs_sweep=True),
}
# Imported by name, so a fingerprint of the figures must be told of them.
MODULES = tuple(f"{__name__}.{name}" for name in FIGURES)


def figures_of(plan: Plan) -> dict[str, Figure]:
    """The figures of each block of a grid."""
    posterior = any(plan.has_posterior(model) for model, _ in plan.shown_rows)
    return {
        name: figure
        for name, figure in FIGURES.items()
        if (posterior or not figure.needs_posterior) and (plan.sweeps or not figure.needs_sweep)
    }


def draw(name: str, block: Block) -> Any:
    """The figure of this name for a block of results."""
    return import_module(f"{__name__}.{name}").draw(block)
