"""Accuracy against expected calibration error of the final models, a point per row of the tables."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bflp.engine.metrics.registry import METRICS
from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block, grouped


@style.styled()
def draw(block: Block) -> Any:
    """Colour and marker tell the row's style; filled or open: how clients weigh."""
    styles = style.row_styles(block.rows, block.weights)
    figure, axes = plt.subplots(figsize=(style.FULL_WIDTH * 0.7, 3.7))
    for row, look in styles.items():
        (accuracy, accuracy_error), (ece, ece_error) = block.final(row, "accuracy"), block.final(row, "ece")
        if np.isnan(accuracy):
            continue
        axes.errorbar(
            ece,
            accuracy,
            xerr=None if np.isnan(ece_error) else ece_error,
            yerr=None if np.isnan(accuracy_error) else accuracy_error,
            color=look.colour,
            elinewidth=0.8,
            capsize=1.5,
            **_marker(look, filled=block.weights[row[0]] == "equal"),
        )
    axes.margins(0.08)
    axes.set_xlabel(METRICS["ece"].title)
    axes.set_ylabel(METRICS["accuracy"].title)
    style.heading(figure, block.title, f"final models, {block.over_seeds()}")
    handles = style.legend_handles(styles.values())
    for handle, look in zip(handles, dict.fromkeys(styles.values()), strict=True):
        handle.set(linestyle="none", **_marker(look, filled=True))
    fills = "; ".join(
        f"{'filled' if block.weights[rows[0][0]] == 'equal' else 'open'}: {title}"
        for title, rows in grouped(block.rows, block.weights)
    )
    style.foot_legend(figure, handles, [fills, *block.gaps(block.rows)])
    if not axes.containers:
        style.empty_panel(axes, "no final results yet")
        style.without_ticks(*figure.axes)
    return figure


def _marker(look: style.Style, filled: bool) -> dict[str, Any]:
    return {
        "marker": look.marker,
        # A star looks smaller than the others.
        "markersize": 8 if look.marker == "*" else 5.5,
        "markerfacecolor": look.colour if filled else "white",
        "markeredgewidth": 1.1,
    }
