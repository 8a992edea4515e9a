"""Learning curves: accuracy, ECE and NLL of the global model over communication rounds."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block
from bflp.reporting.figures.curves import DIVERGED, draw_curves

METRICS = {"accuracy": "Accuracy (%)", "ece": "ECE (%)", "nll": "NLL"}


@style.styled
def draw(block: Block) -> Any:
    """A row of panels per metric, a column per way to weigh the clients, a line per rule."""
    groups = block.weightings()
    styles = style.rule_styles(block.rules())
    figure, grid = plt.subplots(
        len(METRICS),
        len(groups),
        figsize=(style.FULL_WIDTH if len(groups) > 1 else style.FULL_WIDTH * 0.6, 6.3 if len(styles) < 10 else 8.1),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    drawn = False
    for panels, (metric, label) in zip(grid, METRICS.items(), strict=True):
        panels[0].set_ylabel(label)
        for axes, (title, rows) in zip(panels, groups, strict=True):
            drawn |= draw_curves(axes, block, rows, metric, styles)
            if metric == "accuracy":
                axes.set_title(title)
        if metric == "nll":
            _readable_scale(block, panels[0])
    for axes in grid[-1]:
        axes.set_xlabel("Communication round")
    style.heading(figure, block.title, block.over_seeds())
    style.foot_legend(figure, style.rule_handles(styles, block.without_rule()), block.gaps(block.rows, DIVERGED))
    figure.align_ylabels()
    if not drawn:
        style.without_ticks(*figure.axes)
    return figure


def _readable_scale(block: Block, axes: Any) -> None:
    """A logarithmic axis where one rule's likelihood is so bad that a linear one would flatten all others."""
    values = [mean for row in block.rows for mean in block.curve(row, "nll").mean if mean > 0]
    if values and max(values) > 20 * float(np.median(values)):
        axes.set_yscale("log")
