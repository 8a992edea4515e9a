"""The spread of the global posterior (the Euclidean norm of all standard deviations) over communication rounds."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block, grouped
from bflp.reporting.figures.curves import DIVERGED, draw_curves


@style.styled
def draw(block: Block) -> Any:
    """A panel per way to weigh the clients, a line per row with a posterior, on a logarithmic axis."""
    rows = block.posterior_rows
    groups = grouped(rows, block.weights)
    # Of all rows, so that a row looks the same in all figures of a block.
    styles = {row: look for row, look in style.row_styles(block.rows, block.weights).items() if row in rows}
    figure, grid = plt.subplots(1, len(groups), figsize=(style.width_of(len(groups)), 3.0), sharey=True, squeeze=False)
    drawn = [
        draw_curves(axes, block, group, "spread", styles) for axes, (_, group) in zip(grid[0], groups, strict=True)
    ]
    for axes, (title, _) in zip(grid[0], groups, strict=True):
        axes.set_title(style.wrapped(title, 45))
        axes.set_xlabel("Communication round")
        if any(drawn):
            log_axis(axes)
    grid[0][0].set_ylabel("Spread (logarithmic)")
    style.heading(figure, block.title, block.over_seeds())
    style.foot_legend(figure, style.legend_handles(styles.values()), block.gaps(rows, DIVERGED))
    if not any(drawn):
        style.without_ticks(*figure.axes)
    return figure


def log_axis(axes: Any) -> None:
    """Labels at 1, 2 and 5 times each power of ten, as plain numbers: spreads often stay within one decade."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(LogLocator(subs="all"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
