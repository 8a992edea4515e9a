"""Learning curves: accuracy, ECE and NLL of the global model over communication rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import CURVES
from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block
from bflp.reporting.figures.curves import draw_panels

# The spread has a figure of its own.
SHOWN = [name for name in CURVES if name != "spread"]


@style.styled()
def draw(block: Block) -> Any:
    """A line of panels per metric, a column per way to weigh the clients, a line per row of the tables."""
    styles = set(style.row_styles(block.rows, block.weights).values())
    figure, grid, _ = draw_panels(block, block.rows, SHOWN, 2.1 if len(styles) < 10 else 2.7)
    for panels, metric in zip(grid, SHOWN, strict=True):
        panels[0].set_ylabel(_axis_title(block, metric))
        if metric == "nll":
            _readable_scale(block, panels[0])
    figure.align_ylabels()
    return figure


def _axis_title(block: Block, metric: str) -> str:
    """A metric's title; that of the ECE says with how many bins it was measured."""
    bins = " or ".join(map(str, block.ece_bins())) if metric == "ece" else ""
    return METRICS[metric].title + (f", {bins} bins" if bins else "")


def _readable_scale(block: Block, axes: Any) -> None:
    """A logarithmic axis where one row's likelihood is so bad that a linear one would flatten all others."""
    values = [mean for row in block.rows for mean in block.curve(row, "nll").mean if mean > 0]
    if values and max(values) > 20 * float(np.median(values)):
        axes.set_yscale("log")
