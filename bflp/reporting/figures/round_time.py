"""Seconds of local training per communication round, by the number of worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from bflp.grid.plan import Plan
from bflp.reporting.figures import style
from bflp.reporting.figures.block import Row, grouped, weights_of
from bflp.reporting.titles import block_title

Line = Mapping[str, Any]
_IDEAL: dict[str, Any] = {"color": "0.5", "linewidth": 0.9, "linestyle": (0, (1, 1.5))}


@style.styled()
def draw(plan: Plan, measured: Sequence[Line]) -> Any:
    """measured: the lines of a round_time.csv, at least one, of one block of cells. A panel per way to weigh."""
    (block,) = {(line["dataset"], line["partition"], line["clients"]) for line in measured}
    rows = list(dict.fromkeys(_row(line) for line in measured))
    weights = weights_of(plan)
    groups = grouped(rows, weights)
    styles = style.row_styles(rows, weights)
    figure, grid = plt.subplots(1, len(groups), figsize=(style.width_of(len(groups)), 3.4), sharey="row", squeeze=False)
    for axes, (names, shown) in zip(grid[0], groups, strict=True):
        axes.set_title(style.wrapped(names, 45))
        axes.set_xlabel("Worker processes")
        lines = [line for line in measured if _row(line) in shown]
        _panel(axes, sorted(lines, key=lambda line: int(line["processes"])), styles)
    grid[0][0].set_ylabel("Training time per round (s)")
    title = block_title(*block, plan.settings.setups[block[2]].clients)
    style.heading(figure, title, "time per communication round")
    ideal = Line2D([], [], label="ideal speed-up", **_IDEAL)
    style.foot_legend(figure, [*style.legend_handles(styles.values()), ideal])
    return figure


def _row(line: Line) -> Row:
    return line["model"], line["aggregator"]


def _panel(axes: Any, lines: Sequence[Line], styles: Mapping[Row, style.Style]) -> None:
    rows: dict[Row, list[Line]] = {}
    for line in lines:
        rows.setdefault(_row(line), []).append(line)
    for row, of_row in rows.items():
        errors = [float(line.get("standard_error") or "nan") for line in of_row]
        axes.errorbar(
            [int(line["processes"]) for line in of_row],
            [float(line["seconds_per_round"]) for line in of_row],
            yerr=None if np.isnan(errors).any() else errors,
            elinewidth=0.8,
            capsize=1.5,
            **styles[row].line(),
        )
    processes = sorted({int(line["processes"]) for line in lines})
    first = [float(line["seconds_per_round"]) for line in lines if int(line["processes"]) == processes[0]]
    axes.plot(processes, [float(np.mean(first)) * processes[0] / count for count in processes], zorder=1, **_IDEAL)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(processes, list(map(str, processes)))
    style.log_axis(axes)
