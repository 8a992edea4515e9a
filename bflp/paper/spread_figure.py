"""How the spread grows over the rounds with the equations, with the paper's program's arithmetic, and projected."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from bflp.aggregators import built_in
from bflp.paper.reproduction import PLANNED, Kept
from bflp.reporting.figures import style
from bflp.reporting.figures.spread import log_axis
from bflp.reporting.titles import block_title


@style.styled
def draw(results: list[Kept], federation: tuple[str, str, int]) -> Any:
    """A panel per variant, a line per rule, of one (dataset, partition, clients) and seed 0.

    A rule with the same arithmetic in the equations and in the paper's program is in both panels.
    """
    chosen = [
        (name, cell.aggregator, result["rounds"])
        for variant, cell, result in results
        if (cell.dataset, cell.partition, cell.clients) == federation and (cell.model, cell.seed) == ("FVBWA", 0)
        for name in (variant, *([] if "aggregation" in result["settings"] or variant != "reference" else ["exact"]))
    ]
    figure, grid = plt.subplots(1, len(PLANNED), figsize=(style.FULL_WIDTH, 2.8), sharex=True, sharey=True)
    styles = style.rule_styles([rule for rule in built_in() if any(rule == name for _, name, _ in chosen)])
    for axes, variant in zip(grid, PLANNED, strict=True):
        for name, rule, rounds in chosen:
            if name == variant:
                look = styles[rule]
                x, y = [entry["round"] for entry in rounds], [entry["spread"] for entry in rounds]
                axes.plot(x, y, color=look.colour, linestyle=look.dash, marker=look.marker, markevery=10, label=rule)
        if variant not in [name for name, _, _ in chosen]:
            style.empty_panel(axes, "not run")
        axes.set_title(variant)
        axes.set_xlabel("Communication round")
        log_axis(axes)
    grid[0].set_ylabel("Spread (logarithmic)")
    style.heading(figure, f"{block_title(*federation)}, FVBWA", "seed 0")
    style.foot_legend(figure, style.rule_handles(styles, ""))
    return figure
