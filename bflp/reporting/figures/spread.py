"""The spread of the global posterior (the Euclidean norm of all standard deviations) over communication rounds."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bflp.reporting.figures import style
from bflp.reporting.figures.block import WEIGHTS, Block
from bflp.reporting.figures.curves import DIVERGED, draw_curves
from bflp.settings.schema import VARIATIONAL_MODELS


@style.styled
def draw(block: Block) -> Any:
    """A panel per variational model, a line per rule, on a logarithmic axis."""
    variational = [row for row in block.rows if row[1] in block.aggregators()]
    models = list(dict.fromkeys(model for model, _ in variational))
    titles = dict(zip(VARIATIONAL_MODELS, WEIGHTS, strict=True))
    styles = style.rule_styles(block.aggregators())
    figure, grid = plt.subplots(
        1,
        len(models),
        figsize=(style.FULL_WIDTH if len(models) > 1 else style.FULL_WIDTH * 0.6, 3.0),
        sharey=True,
        squeeze=False,
    )
    drawn = [
        draw_curves(axes, block, [row for row in variational if row[0] == model], "spread", styles)
        for axes, model in zip(grid[0], models, strict=True)
    ]
    for axes, model in zip(grid[0], models, strict=True):
        axes.set_title(f"{model} ({titles[model]})")
        axes.set_xlabel("Communication round")
        if any(drawn):
            log_axis(axes)
    grid[0][0].set_ylabel("Spread (logarithmic)")
    style.heading(figure, block.title, block.over_seeds())
    style.foot_legend(figure, style.rule_handles(styles, ""), block.gaps(variational, DIVERGED))
    if not any(drawn):
        style.without_ticks(*figure.axes)
    return figure


def log_axis(axes: Any) -> None:
    """Labels at 1, 2 and 5 times each power of ten, as plain numbers: spreads often stay within one decade."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(LogLocator(subs="all"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
