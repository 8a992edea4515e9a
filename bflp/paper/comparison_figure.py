"""Differences from the published numbers, in published standard deviations of one seed."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from bflp.paper.comparison import MARKED_BEYOND, blocks
from bflp.reporting.figures import style
from bflp.reporting.titles import block_title, row_title

METRIC_TITLES = {"accuracy": "Accuracy", "ece": "ECE", "nll": "NLL", "spread": "Spread"}


@style.styled
def draw(compared: pd.DataFrame) -> Any:
    """A panel per block of cells, a row per model and rule, a marker per metric; beyond the dashed lines is marked.

    compared: from `bflp.paper.comparison.compare`. The axis is linear to 10 and logarithmic beyond.
    """
    parts = list(blocks(compared))
    rows = [block[["model", "aggregator"]].drop_duplicates().to_records(index=False).tolist() for _, block in parts]
    heights = [0.6 + 0.24 * len(names) for names in rows]
    figure, grid = plt.subplots(
        len(parts),
        1,
        figsize=(style.FULL_WIDTH, sum(heights) + 0.9),
        squeeze=False,
        sharex=True,
        height_ratios=heights,
    )
    for axes, (key, block), names in zip(grid[:, 0], parts, rows, strict=True):
        for index, (metric, title) in enumerate(METRIC_TITLES.items()):
            part = block[block["metric"] == metric]
            places = [names.index((row.model, row.aggregator)) + (index - 1.5) * 0.15 for row in part.itertuples()]
            axes.plot(part["difference"], places, ["o", "s", "^", "D"][index], color=style.colour(index), label=title)
        axes.axvspan(-MARKED_BEYOND, MARKED_BEYOND, color="0.94", zorder=0)
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_yticks(np.arange(len(names)), [row_title(name) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xscale("symlog", linthresh=10, linscale=2)
        axes.set_title(block_title(*key[:2], str(key[2])))
    ticks = [-100, -10, -3, 0, 3, 10, 100]
    grid[-1, 0].set_xticks(ticks, [str(tick) for tick in ticks])
    grid[-1, 0].set_xlabel("Ours minus published, in published standard deviations of one seed (gray: up to 3)")
    handles, _ = grid[0, 0].get_legend_handles_labels()
    style.foot_legend(figure, handles)
    return figure
