"""Seconds of local training per communication round, by the number of worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from bflp.grid.plan import NO_AGGREGATOR
from bflp.reporting.figures import style
from bflp.reporting.figures.block import WEIGHTINGS
from bflp.reporting.titles import block_title

Line = Mapping[str, Any]


@style.styled
def draw(measured: Sequence[Line]) -> Any:
    """measured: the lines of a round_time.csv. A line of panels per block of cells, a column per way to weigh."""
    lines = [{**line, "aggregator": _rule(line["aggregator"])} for line in measured]
    blocks = list(dict.fromkeys((line["dataset"], line["partition"], int(line["clients"])) for line in lines))
    groups = [models for models in WEIGHTINGS if any(line["model"] in models for line in lines)] or list(WEIGHTINGS[:1])
    styles = style.rule_styles(list(dict.fromkeys(line["aggregator"] for line in lines)))
    figure, grid = plt.subplots(
        max(1, len(blocks)),
        len(groups),
        figsize=(style.FULL_WIDTH if len(groups) > 1 else style.FULL_WIDTH * 0.6, 0.8 + 2.6 * max(1, len(blocks))),
        sharey="row",
        squeeze=False,
    )
    for panels, block in zip(grid, blocks, strict=False):
        of_block = [line for line in lines if (line["dataset"], line["partition"], int(line["clients"])) == block]
        for axes, models in zip(panels, groups, strict=True):
            shown = [line for line in of_block if line["model"] in models]
            names = ", ".join(dict.fromkeys(line["model"] for line in shown))
            axes.set_title(names if len(blocks) == 1 else f"{block_title(*block)}\n{names}")
            axes.set_xlabel("Worker processes")
            _panel(axes, shown, styles)
        panels[0].set_ylabel("Training time per round (s)")
    if not blocks:
        _panel(grid[0][0], [], styles)
    else:
        heading = block_title(*blocks[0]) if len(blocks) == 1 else ""
        style.heading(figure, *([heading, "time per communication round"] if heading else ["Time per round"]))
        without_rule = dict.fromkeys(line["model"] for line in lines if line["aggregator"] == NO_AGGREGATOR)
        handles = style.rule_handles(styles, " / ".join(without_rule))
        handles.append(Line2D([], [], color="0.5", linewidth=0.9, linestyle=(0, (1, 1.5)), label="ideal speed-up"))
        style.foot_legend(figure, handles)
    return figure


def _rule(text: str) -> str:
    return NO_AGGREGATOR if text in ("N/A", "", NO_AGGREGATOR) else text


def _panel(axes: Any, lines: Sequence[Line], styles: Mapping[str, style.RuleStyle]) -> None:
    if not lines:
        style.empty_panel(axes, "nothing measured yet")
        style.without_ticks(axes)
        return
    rows: dict[tuple[str, str], list[Line]] = {}
    for line in sorted(lines, key=lambda line: int(line["processes"])):
        rows.setdefault((line["model"], line["aggregator"]), []).append(line)
    for (_, rule), of_row in rows.items():
        look = styles[rule]
        errors = [float(line.get("standard_error") or "nan") for line in of_row]
        axes.errorbar(
            [int(line["processes"]) for line in of_row],
            [float(line["seconds_per_round"]) for line in of_row],
            yerr=None if np.isnan(errors).any() else errors,
            color=look.colour,
            linestyle=look.dash,
            marker=look.marker,
            elinewidth=0.8,
            capsize=1.5,
        )
    processes = sorted({int(line["processes"]) for line in lines})
    first = float(
        np.mean([float(line["seconds_per_round"]) for line in lines if int(line["processes"]) == processes[0]])
    )
    axes.plot(
        processes,
        [first * processes[0] / count for count in processes],
        color="0.5",
        linewidth=0.9,
        linestyle=(0, (1, 1.5)),
        zorder=1,
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(processes))
    axes.xaxis.set_major_formatter(FixedFormatter([str(count) for count in processes]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
