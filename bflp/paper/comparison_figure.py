"""Differences from the published numbers, in published standard deviations of one seed or in points."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from bflp.engine.metrics.registry import METRICS
from bflp.paper.comparison import MARKED_BEYOND, parts
from bflp.paper.sources import KEYS, sources
from bflp.reporting.figures import style
from bflp.reporting.titles import block_title, row_title

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@style.styled()
def draw(compared: pd.DataFrame) -> Any:
    """A panel per block of cells and source, a row per model and rule, a marker per metric, open where the set-up is
    another than the published one; beyond the gray band is marked.

    compared: from `bflp.paper.comparison.compare`. The axis is linear to 10 and logarithmic beyond.
    """
    panels = [
        (block_title(*key), sources()[source].about.name, part)
        for (*key, source), part in parts(compared, [*KEYS[:3], "source"])
    ]
    rows = [part[["model", "aggregator"]].drop_duplicates().to_records(index=False).tolist() for *_, part in panels]
    heights = [0.6 + 0.24 * len(names) for names in rows]
    figure, grid = plt.subplots(
        len(panels),
        1,
        figsize=(style.FULL_WIDTH, sum(heights) + 0.9),
        squeeze=False,
        sharex=True,
        height_ratios=heights,
    )
    metrics = list(dict.fromkeys(compared["metric"]))
    for axes, (title, source, part), names in zip(grid[:, 0], panels, rows, strict=True):
        for row in part.itertuples():
            index = metrics.index(row.metric)
            place = names.index((row.model, row.aggregator)) + (index - (len(metrics) - 1) / 2) * 0.6 / len(metrics)
            look = {"color": style.colour(index), "fillstyle": "none" if row.differing else "full"}
            axes.plot(row.difference, place, MARKERS[index % len(MARKERS)], **look)
        points = part["unit"].eq("points").all()
        if not points:
            axes.axvspan(-MARKED_BEYOND, MARKED_BEYOND, color="0.94", zorder=0)
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_yticks(np.arange(len(names)), [row_title(name) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xscale("symlog", linthresh=10, linscale=2)
        axes.set_title(f"{title}: {source}{', in points' if points else ''}")
    ticks = [-100, -10, -3, 0, 3, 10, 100]
    grid[-1, 0].set_xticks(ticks, [str(tick) for tick in ticks])
    grid[-1, 0].set_xlabel(
        "Ours minus published, in published standard deviations of one seed (gray: up to 3) or in points"
    )
    handles = [
        Line2D([], [], color=style.colour(index), marker=MARKERS[index % len(MARKERS)], linestyle="", label=label)
        for index, label in enumerate(METRICS[metric].label for metric in metrics)
    ]
    notes = ["Open markers: another set-up than the published one."] if compared["differing"].any() else []
    style.foot_legend(figure, handles, notes)
    return figure
