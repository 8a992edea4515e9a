"""Seconds of local training per communication round, by the number of worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from bflp.grid.cell import NO_AGGREGATOR
from bflp.grid.plan import Plan
from bflp.reporting.figures import style
from bflp.reporting.figures.block import Row, grouped, weights_of
from bflp.reporting.titles import NOT_APPLICABLE, block_title

Line = Mapping[str, Any]
_IDEAL: dict[str, Any] = {"color": "0.5", "linewidth": 0.9, "linestyle": (0, (1, 1.5))}


@style.styled()
def draw(plan: Plan, measured: Sequence[Line]) -> Any:
    """measured: the lines of a round_time.csv. A line of panels per block of cells, a column per way to weigh."""
    blocks = list(dict.fromkeys(_block(line) for line in measured))
    rows = list(dict.fromkeys(_row(line) for line in measured))
    weights = weights_of(plan)
    groups = grouped(rows, weights)
    styles = style.row_styles(rows, weights)
    figure, grid = plt.subplots(
        max(1, len(blocks)),
        max(1, len(groups)),
        figsize=(style.width_of(len(groups)), 0.8 + 2.6 * max(1, len(blocks))),
        sharey="row",
        squeeze=False,
    )
    if not measured:
        _panel(grid[0][0], [], styles)
        return figure
    titles = [block_title(*block, plan.settings.setups[block[2]].clients) for block in blocks]
    for panels, block, title in zip(grid, blocks, titles, strict=True):
        for axes, (names, shown) in zip(panels, groups, strict=True):
            heading = f"{title}\n" if len(blocks) > 1 else ""
            axes.set_title(heading + style.wrapped(names, 45))
            axes.set_xlabel("Worker processes")
            lines = [line for line in measured if _block(line) == block and _row(line) in shown]
            _panel(axes, sorted(lines, key=lambda line: int(line["processes"])), styles)
        panels[0].set_ylabel("Training time per round (s)")
    style.heading(figure, *(["Time per round"] if len(blocks) > 1 else [titles[0], "time per communication round"]))
    ideal = Line2D([], [], label="ideal speed-up", **_IDEAL)
    style.foot_legend(figure, [*style.legend_handles(styles.values()), ideal])
    return figure


def _block(line: Line) -> tuple[str, str, str]:
    return line["dataset"], line["partition"], line["clients"]


def _row(line: Line) -> Row:
    rule = line["aggregator"]
    return line["model"], NO_AGGREGATOR if rule in (NOT_APPLICABLE, "") else rule


def _panel(axes: Any, lines: Sequence[Line], styles: Mapping[Row, style.Style]) -> None:
    if not lines:
        style.empty_panel(axes, "nothing measured yet")
        style.without_ticks(axes)
        return
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
