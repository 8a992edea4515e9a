"""Learning curves: accuracy, ECE and NLL of the global model over communication rounds."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import CURVES
from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block, grouped
from bflp.reporting.figures.curves import DIVERGED, draw_curves

# The spread has a figure of its own.
SHOWN = [name for name in CURVES if name != "spread"]


@style.styled
def draw(block: Block) -> Any:
    """A line of panels per metric, a column per way to weigh the clients, a line per row of the tables."""
    groups = grouped(block.rows, block.weights)
    styles = style.row_styles(block.rows, block.weights)
    handles = style.legend_handles(styles.values())
    figure, grid = plt.subplots(
        len(SHOWN),
        len(groups),
        figsize=(style.width_of(len(groups)), (2.1 if len(handles) < 10 else 2.7) * len(SHOWN)),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    drawn = False
    for panels, metric in zip(grid, SHOWN, strict=True):
        panels[0].set_ylabel(_axis_title(block, metric))
        for axes, (_, rows) in zip(panels, groups, strict=True):
            drawn |= draw_curves(axes, block, rows, metric, styles)
        if metric == "nll":
            _readable_scale(block, panels[0])
    for axes, (title, _) in zip(grid[0], groups, strict=True):
        axes.set_title(style.wrapped(title, 45))
    for axes in grid[-1]:
        axes.set_xlabel("Communication round")
    style.heading(figure, block.title, block.over_seeds())
    style.foot_legend(figure, handles, block.gaps(block.rows, DIVERGED))
    figure.align_ylabels()
    if not drawn:
        style.without_ticks(*figure.axes)
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
