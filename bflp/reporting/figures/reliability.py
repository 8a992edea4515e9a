"""Reliability diagrams of the final models: accuracy by confidence (DeGroot and Fienberg 1983; Guo et al. 2017)."""

from __future__ import annotations

import textwrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedFormatter, FixedLocator

from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block, Floats, Row, row_title

PANELS_PER_LINE = 6
# More bars cannot be told apart in a panel of an inch.
MOST_BARS = 20
# Inches, at print size.
LEFT, RIGHT, BOTTOM = 0.62, 0.12, 0.48
WIDEST, GAP, BETWEEN, LOWER = 1.9, 0.17, 0.1, 0.3
TITLE_LINE = 0.13


@style.styled
def draw(block: Block) -> Any:
    """A panel per row of the tables, its bins pooled over seeds; below it the share of samples in each bin."""
    lines: list[list[Row]] = []
    for _, rows in block.weightings():
        lines.extend(list(rows[start : start + PANELS_PER_LINE]) for start in range(0, len(rows), PANELS_PER_LINE))
    columns = max(len(rows) for rows in lines)
    pooled = {
        row: pooled_bins([result["reliability"] for result in block.of(row)])
        for rows in lines
        for row in rows
        if block.of(row) and not block.diverged(row)
    }
    highest = max((float(share.max()) for _, _, share in pooled.values()), default=1.0)

    # Every place is known beforehand: to find it for some dozens of panels would take most of the time.
    side = min(WIDEST, (style.FULL_WIDTH - LEFT - RIGHT) / columns - GAP)
    width = max(style.COLUMN_WIDTH, LEFT + columns * (side + GAP) - GAP + RIGHT)
    detail = "final models" + (", pooled over seeds" if len(block.seeds) > 1 else "")
    heading = style.heading_text(block.title, detail, width)
    top_margin = 0.12 + 0.17 * (1 + heading.count("\n"))
    title_room = 0.1 + TITLE_LINE * max(1 + _panel_title(row).count("\n") for rows in lines for row in rows)
    line_height = title_room + side + BETWEEN + LOWER
    height = top_margin + len(lines) * (line_height + 0.06) + BOTTOM
    figure = plt.figure(figsize=(width, height))
    figure.set_layout_engine("none")
    styles = style.rule_styles(block.rules())
    left = LEFT + (width - LEFT - RIGHT - columns * (side + GAP) + GAP) / 2
    for line, rows in enumerate(lines):
        top = height - top_margin - title_room - line * (line_height + 0.06)
        for column, row in enumerate(rows):
            x = left + column * (side + GAP)
            upper = figure.add_axes((x / width, (top - side) / height, side / width, side / height))
            foot = top - side - BETWEEN - LOWER
            lower = figure.add_axes((x / width, foot / height, side / width, LOWER / height))
            _panel(upper, block, row, pooled.get(row), styles[row[1]].colour)
            _shares(lower, pooled.get(row), highest)
            lower.tick_params(labelbottom=all(column >= len(below) for below in lines[line + 1 :]))
            if column:
                upper.tick_params(labelleft=False)
                lower.tick_params(labelleft=False)
            else:
                upper.text(-0.52 / side, 0.5, "Accuracy (%)", transform=upper.transAxes, rotation=90, **_MIDDLE)
                lower.text(-0.52 / side, 0.5, "Share", transform=lower.transAxes, rotation=90, **_MIDDLE)
    figure.text(0.5, 1 - 0.06 / height, heading, va="top", ha="center", fontsize=9)
    figure.text((left + (columns * (side + GAP) - GAP) / 2) / width, 0.08 / height, "Confidence (%)", ha="center")
    return figure


_MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}


def _panel(axes: Any, block: Block, row: Row, bins: tuple[Floats, Floats, Floats] | None, colour: str) -> None:
    axes.set_title(_panel_title(row), pad=3)
    axes.set(xlim=(0, 100), ylim=(0, 100))
    axes.xaxis.set_major_locator(FixedLocator([0, 50, 100]))
    axes.yaxis.set_major_locator(FixedLocator([0, 50, 100]))
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
    ran = len(block.of(row))
    text = f"ECE {block.final(row, 'ece')[0]:.2f}%" + (f"\n{ran}/{wanted} seeds" if ran < wanted else "")
    # Behind the text, since a model that is not confident enough has high bars there.
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
    axes.text(4, 96, text, fontsize=7, va="top", ha="left", bbox=box)


def _panel_title(row: Row) -> str:
    """A row's name, on two lines where it is longer than a panel is wide."""
    title = row_title(row)
    return title if len(title) <= 12 else "\n".join(textwrap.wrap(title, 14))


def _shares(axes: Any, bins: tuple[Floats, Floats, Floats] | None, highest: float) -> None:
    axes.set(xlim=(0, 100), ylim=(0, highest))
    axes.xaxis.set_major_locator(FixedLocator([0, 50, 100]))
    # The outer labels end with the panel, so that they do not meet those of the next.
    for label, side in zip(axes.get_xticklabels(), ("left", "center", "right"), strict=True):
        label.set_horizontalalignment(side)
    axes.yaxis.set_major_locator(FixedLocator([0, highest]))
    axes.yaxis.set_major_formatter(FixedFormatter(["0%", f"{highest:.0%}"]))
    if bins is not None:
        edges, _, share = bins
        axes.stairs(share, edges, fill=True, color="0.55")


def pooled_bins(reliability: list[dict[str, Any]]) -> tuple[Floats, Floats, Floats]:
    """Edges [B + 1] (%), accuracy [B] (%, NaN in empty bins) and share of samples [B], summed over the given cells.

    Neighbouring bins are summed until at most MOST_BARS are left, where their number has a fitting divisor.
    """
    counts = np.array([cell["counts"] for cell in reliability], dtype=np.float64).sum(axis=0)
    correct = np.array([cell["correct"] for cell in reliability], dtype=np.float64).sum(axis=0)
    bins = len(counts)
    width = next(width for width in range(1, bins + 1) if bins % width == 0 and bins // width <= MOST_BARS)
    counts, correct = counts.reshape(-1, width).sum(axis=1), correct.reshape(-1, width).sum(axis=1)
    accuracy = np.full(len(counts), np.nan)
    used = counts > 0
    accuracy[used] = 100 * correct[used] / counts[used]
    return np.linspace(0, 100, len(counts) + 1), accuracy, counts / counts.sum()
