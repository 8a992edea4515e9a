"""Differences of all rows to the reference row, with their intervals: a panel per metric."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bflp.reporting.figures import style
from bflp.reporting.statistics.analysis import Compared, Statistics
from bflp.reporting.statistics.paired import LEVEL
from bflp.reporting.titles import row_title

_MOST_PANELS = 3  # side by side
_BLOCK = "0.6"
_MARGIN = "0.92"


@style.styled()
def draw(statistics: Statistics) -> Any:
    """Mean over blocks with its 95% interval, the blocks' own means in grey, and what does not matter as a band."""
    rows, panels = statistics.others, len(statistics.compared)
    columns = min(panels, _MOST_PANELS)
    lines = -(-panels // columns)
    figure, grid = plt.subplots(
        lines,
        columns,
        figsize=(style.FULL_WIDTH, lines * (0.9 + 0.19 * max(len(rows), 3)) + 0.7),
        sharey=True,
        squeeze=False,
    )
    for axes, compared in zip(grid.flat, statistics.compared, strict=False):
        _panel(axes, statistics, compared)
    for axes in list(grid.flat)[panels:]:
        axes.set_axis_off()
    reference = row_title(statistics.rows[statistics.reference])
    style.heading(figure, f"Differences to {reference}", "paired by seed, mean over blocks, 95% intervals")
    style.foot_legend(figure, _handles())
    return figure


def _panel(axes: Any, statistics: Statistics, compared: Compared) -> None:
    rows, names = statistics.others, statistics.names()
    axes.axvspan(-compared.margin, compared.margin, color=_MARGIN, linewidth=0)
    axes.axvline(0, color="black", linewidth=0.6)
    for place, row in enumerate(rows):
        blocks = compared.by_block.difference[row]
        axes.plot(blocks, np.full(len(blocks), place), "|", color=_BLOCK, markersize=6)
        axes.plot([compared.overall.low[row], compared.overall.high[row]], [place, place], "-", color="black")
        colour = "black" if compared.differs[row] < LEVEL else "white"
        axes.plot(compared.overall.difference[row], place, "o", color="black", markerfacecolor=colour)
    axes.set_yticks(range(len(rows)), [names[row] for row in rows])
    axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_title(compared.metric.title)
    axes.set_xlabel("more is better" if compared.metric.higher_is_better else "less is better")
    if np.isnan(compared.overall.difference[rows]).all():
        style.empty_panel(axes, "no pair has run")


def _handles() -> list[Any]:
    return [
        Line2D([], [], color="black", marker="o", label="differs (Holm-corrected)"),
        Line2D([], [], color="black", marker="o", markerfacecolor="white", label="not told from none"),
        Line2D([], [], color=_BLOCK, marker="|", linestyle="", markersize=6, label="one block"),
        Patch(color=_MARGIN, label="does not matter"),
    ]
