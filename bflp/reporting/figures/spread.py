"""The spread of the global posterior (the Euclidean norm of all standard deviations) over communication rounds."""

from __future__ import annotations

from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block
from bflp.reporting.figures.curves import draw_panels


@style.styled
def draw(block: Block) -> Any:
    """A panel per way to weigh the clients, a line per row with a posterior, on a logarithmic axis."""
    figure, grid, drawn = draw_panels(block, block.posterior_rows, ["spread"], 3.0)
    for axes in grid[0] if drawn else ():
        log_axis(axes)
    grid[0][0].set_ylabel("Spread (logarithmic)")
    return figure


def log_axis(axes: Any) -> None:
    """Labels at 1, 2 and 5 times each power of ten, as plain numbers: spreads often stay within one decade."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(LogLocator(subs="all"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
