"""Accuracy against expected calibration error of the final models, a point per row of the tables."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bflp.grid.plan import NO_AGGREGATOR
from bflp.reporting.figures import style
from bflp.reporting.figures.block import WEIGHTINGS, WEIGHTS, Block


@style.styled
def draw(block: Block) -> Any:
    """Colour and marker tell the rule; filled: clients weigh equally, open: by data size."""
    styles = style.rule_styles(block.rules())
    figure, axes = plt.subplots(figsize=(style.FULL_WIDTH * 0.7, 3.7))
    for row in block.rows:
        (accuracy, accuracy_error), (ece, ece_error) = block.final(row, "accuracy"), block.final(row, "ece")
        if np.isnan(accuracy):
            continue
        axes.errorbar(
            ece,
            accuracy,
            xerr=None if np.isnan(ece_error) else ece_error,
            yerr=None if np.isnan(accuracy_error) else accuracy_error,
            color=styles[row[1]].colour,
            elinewidth=0.8,
            capsize=1.5,
            **_marker(styles[row[1]], row[1], filled=row[0] in WEIGHTINGS[0]),
        )
    axes.margins(0.08)
    axes.set_xlabel("ECE (%)")
    axes.set_ylabel("Accuracy (%)")
    style.heading(figure, block.title, f"final models, {block.over_seeds()}")
    handles = style.rule_handles(styles, block.without_rule())
    for handle, rule in zip(handles, styles, strict=True):
        handle.set(linestyle="none", **_marker(styles[rule], rule, filled=True))
    fills = [
        f"{fill}: {', '.join(present)} ({weights})"
        for fill, models, weights in zip(("filled", "open"), WEIGHTINGS, WEIGHTS, strict=True)
        if (present := [model for model in models if model in {row[0] for row in block.rows}])
    ]
    style.foot_legend(figure, handles, ["; ".join(fills), *block.gaps(block.rows)])
    if not axes.containers:
        style.empty_panel(axes, "no final results yet")
        style.without_ticks(*figure.axes)
    return figure


def _marker(look: style.RuleStyle, rule: str, filled: bool) -> dict[str, Any]:
    return {
        "marker": look.marker,
        # A star looks smaller than the others.
        "markersize": 8 if rule == NO_AGGREGATOR else 5.5,
        "markerfacecolor": look.colour if filled else "white",
        "markeredgewidth": 1.1,
    }
