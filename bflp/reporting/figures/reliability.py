"""Reliability diagrams of the final models: accuracy by confidence (DeGroot and Fienberg 1983; Guo et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block, Floats, Row, grouped
from bflp.reporting.titles import row_title

PANELS_PER_LINE = 6
# More bars cannot be told apart in a panel of an inch.
MOST_BARS = 20
FEWEST_BARS = 5
# Inches: a line of panels, of its strip below, and of all that has a place of its own.
SIDE, STRIP, REST = 1.0, 0.3, 0.9


@style.styled()
def draw(block: Block) -> Any:
    """A panel per row of the tables, its bins pooled over seeds; below it the share of samples in each bin."""
    lines: list[list[Row]] = []
    for _, rows in grouped(block.rows, block.weights):
        lines.extend(list(rows[start : start + PANELS_PER_LINE]) for start in range(0, len(rows), PANELS_PER_LINE))
    columns = max(map(len, lines))
    pooled = {
        row: pooled_bins([evaluation.reliability for evaluation in found])
        for row in block.rows
        if (found := block.evaluations(row))
    }
    highest = max((float(share.max()) for _, _, share in pooled.values()), default=1.0)
    styles = style.row_styles(block.rows, block.weights)
    figure, grid = plt.subplots(
        2 * len(lines),
        columns,
        figsize=(max(style.COLUMN_WIDTH, style.FULL_WIDTH * columns / 6), (SIDE + STRIP + 0.3) * len(lines) + REST),
        squeeze=False,
        height_ratios=[SIDE, STRIP] * len(lines),
    )
    for line, rows in enumerate(lines):
        for column, (row, upper, lower) in enumerate(zip_longest(rows, *grid[2 * line : 2 * line + 2])):
            if row is None:
                upper.remove()
                lower.remove()
                continue
            _panel(upper, block, row, pooled.get(row), styles[row].colour)
            _shares(lower, pooled.get(row), highest)
            lower.tick_params(labelbottom=all(column >= len(below) for below in lines[line + 1 :]))
            for axes in (upper, lower):
                axes.tick_params(labelleft=not column)
        grid[2 * line][0].set_ylabel("Accuracy (%)")
        grid[2 * line + 1][0].set_ylabel("Share")
    style.heading(figure, block.title, "final models" + (", pooled over seeds" if len(block.seeds) > 1 else ""))
    figure.supxlabel("Confidence (%)", fontsize=8)
    figure.align_ylabels(grid[:, 0])
    return figure


def _panel(axes: Any, block: Block, row: Row, bins: tuple[Floats, Floats, Floats] | None, colour: str) -> None:
    axes.set_title(style.wrapped(row_title(row), 14), pad=3)
    axes.set(xlim=(0, 100), ylim=(0, 100), xticks=[0, 50, 100], yticks=[0, 50, 100])
    axes.tick_params(labelbottom=False)
    wanted = len(block.seeds)
    if bins is None:
        diverged = block.diverged(row)
        style.empty_panel(axes, f"diverged\n({diverged}/{wanted})" if diverged else "no results\nyet")
        return
    edges, accuracy, _ = bins
    axes.plot([0, 100], [0, 100], color="0.35", linewidth=0.8, linestyle=(0, (4, 2)))
    axes.stairs(np.nan_to_num(accuracy), edges, fill=True, color=colour, alpha=0.45, linewidth=0)
    axes.stairs(np.nan_to_num(accuracy), edges, color=colour, linewidth=0.8)
    ran = len(block.evaluations(row))
    text = f"ECE {block.final(row, 'ece')[0]:.2f}%" + (f"\n{ran}/{wanted} seeds" if ran < wanted else "")
    # Behind the text, since a model that is not confident enough has high bars there.
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
    axes.text(4, 96, text, fontsize=7, va="top", ha="left", bbox=box)


def _shares(axes: Any, bins: tuple[Floats, Floats, Floats] | None, highest: float) -> None:
    axes.set(xlim=(0, 100), ylim=(0, highest), xticks=[0, 50, 100])
    axes.set_yticks([0, highest], ["0%", f"{highest:.0%}"])
    # The outer labels end with the panel, so that they do not meet those of the next.
    for label, side in zip(axes.get_xticklabels(), ("left", "center", "right"), strict=True):
        label.set_horizontalalignment(side)
    if bins is not None:
        edges, _, share = bins
        axes.stairs(share, edges, fill=True, color="0.55")


def pooled_bins(reliability: Sequence[Any]) -> tuple[Floats, Floats, Floats]:
    """Edges [B + 1] (%), accuracy [B] (%, NaN in empty bins) and share of samples [B], summed over the given cells.

    Neighbouring bins are summed until at most MOST_BARS are left, at edges that the bins of all cells have. Bars are
    equally wide where that leaves FEWEST_BARS (of a prime number of bins it leaves one), else they differ by a bin.
    """
    common = math.gcd(*(len(cell.counts) for cell in reliability))
    bars = next(bars for bars in range(min(MOST_BARS, common), 0, -1) if common % bars == 0)
    if bars < min(FEWEST_BARS, common):
        bars = math.ceil(common / math.ceil(common / MOST_BARS))
    edges = np.arange(bars + 1) * common // bars

    def summed(name: str) -> Floats:
        parts = [
            np.add.reduceat(np.reshape(getattr(cell, name), (common, -1)).sum(axis=1), edges[:-1])
            for cell in reliability
        ]
        total: Floats = np.sum(parts, axis=0, dtype=np.float64)
        return total

    counts, correct = summed("counts"), summed("correct")
    accuracy = np.full(bars, np.nan)
    np.divide(100 * correct, counts, out=accuracy, where=counts > 0)
    return 100 * edges / common, accuracy, counts / counts.sum()
