"""A block's metrics over rounds: a column of panels per way to weigh the clients, a line per row, a band of its
standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block, Row, grouped


def draw_panels(block: Block, rows: Sequence[Row], metrics: Sequence[str], height: float) -> tuple[Any, Any, bool]:
    """A figure with a line of panels per metric, `height` inches each; its panels [metrics, columns]; and whether there
    is anything in them."""
    groups = grouped(rows, block.weights)
    # Of all rows, so that a row looks the same in all figures of a block.
    styles = {row: look for row, look in style.row_styles(block.rows, block.weights).items() if row in rows}
    figure, grid = plt.subplots(
        len(metrics),
        len(groups),
        figsize=(style.width_of(len(groups)), height * len(metrics)),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    drawn = False
    for panels, metric in zip(grid, metrics, strict=True):
        for axes, (_, group) in zip(panels, groups, strict=True):
            drawn |= _draw_curves(axes, block, group, metric, styles)
    for axes, (title, _) in zip(grid[0], groups, strict=True):
        axes.set_title(style.wrapped(title, 45))
    for axes in grid[-1]:
        axes.set_xlabel("Communication round")
    style.heading(figure, block.title, block.over_seeds())
    gaps = block.gaps(rows, "Diverged (a cross ends the curve)")
    style.foot_legend(figure, style.legend_handles(styles.values()), gaps)
    if not drawn:
        style.without_ticks(*figure.axes)
    return figure, grid, drawn


def _draw_curves(axes: Any, block: Block, rows: Sequence[Row], metric: str, styles: Mapping[Row, style.Style]) -> bool:
    """Draw the rows' curves of a metric into a panel; return whether there are any."""
    drawn = False
    for index, row in enumerate(rows):
        curve = block.curve(row, metric)
        if not len(curve.rounds):
            continue
        drawn = True
        look = styles[row]
        points = style.thinned(len(curve.rounds))
        rounds, mean, error = curve.rounds[points], curve.mean[points], curve.error[points]
        if not np.isnan(error).any():
            axes.fill_between(rounds, mean - error, mean + error, color=look.colour, alpha=0.18, linewidth=0)
        # A few markers per line, at other rounds for each line, so that they do not hide one another.
        step = max(1, min(2, len(points) // 3), len(points) // 6)
        axes.plot(rounds, mean, markevery=(index * max(1, step // len(rows)) % step, step), **look.line())
        if block.diverged(row):
            axes.plot(rounds[-1:], mean[-1:], color=look.colour, marker="x", markersize=7, markeredgewidth=1.6)
    if not drawn:
        style.empty_panel(axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    return drawn
