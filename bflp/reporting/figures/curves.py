"""Drawing a block's metrics over rounds: a line per row, a band of its standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from bflp.reporting.figures.block import Block, Row
from bflp.reporting.figures.style import Style, empty_panel, thinned

# For the figure's foot.
DIVERGED = "Diverged (a cross ends the curve)"


def draw_curves(axes: Any, block: Block, rows: Sequence[Row], metric: str, styles: Mapping[Row, Style]) -> bool:
    """Draw the rows' curves of a metric into a panel; return whether there are any."""
    drawn = False
    for index, row in enumerate(rows):
        curve = block.curve(row, metric)
        if not len(curve.rounds):
            continue
        drawn = True
        style = styles[row]
        points = thinned(len(curve.rounds))
        rounds, mean, error = curve.rounds[points], curve.mean[points], curve.error[points]
        if not np.isnan(error).any():
            axes.fill_between(rounds, mean - error, mean + error, color=style.colour, alpha=0.18, linewidth=0)
        # A few markers per line, at other rounds for each line, so that they do not hide one another.
        step = max(1, min(2, len(points) // 3), len(points) // 6)
        axes.plot(rounds, mean, markevery=(index * max(1, step // len(rows)) % step, step), **style.line())
        if block.diverged(row):
            axes.plot(rounds[-1:], mean[-1:], color=style.colour, marker="x", markersize=7, markeredgewidth=1.6)
    if not drawn:
        empty_panel(axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    return drawn
