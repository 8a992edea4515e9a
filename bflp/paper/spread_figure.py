"""How the spread grows over the rounds with the equations, with the paper's program's arithmetic, and projected."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from bflp.aggregators import names
from bflp.paper.full_scale import PLANNED, Kept
from bflp.reporting.figures import style
from bflp.reporting.titles import block_title


@style.styled()
def draw(results: list[Kept], block: tuple[str, str, str]) -> Any:
    """A panel per variant, a line per rule, of one (dataset, partition, clients) and seed 0.

    A rule with the same arithmetic in the equations and in the paper's program is in both panels.
    """
    chosen = [
        (name, cell.aggregator, result.rounds)
        for variant, cell, result in results
        if cell.block == block and (cell.model, cell.seed) == ("FVBWA", 0)
        for name in (variant, *([] if "aggregation" in result.settings or variant != "reference" else ["exact"]))
    ]
    figure, grid = plt.subplots(1, len(PLANNED), figsize=(style.FULL_WIDTH, 2.8), sharex=True, sharey=True)
    rows = [("FVBWA", rule) for rule in names() if any(rule == name for _, name, _ in chosen)]
    styles = style.row_styles(rows, {"FVBWA": "data"})
    for axes, variant in zip(grid, PLANNED, strict=True):
        for name, rule, rounds in chosen:
            if name == variant:
                x, y = [entry.round for entry in rounds], [entry.spread for entry in rounds]
                axes.plot(x, y, markevery=10, label=rule, **styles["FVBWA", rule].line())
        if variant not in [name for name, _, _ in chosen]:
            style.empty_panel(axes, "not run")
        axes.set_title(variant)
        axes.set_xlabel("Communication round")
        style.log_axis(axes)
    grid[0].set_ylabel("Spread (logarithmic)")
    style.heading(figure, f"{block_title(*block)}, FVBWA", "seed 0")
    style.foot_legend(figure, style.legend_handles(styles.values()))
    return figure
