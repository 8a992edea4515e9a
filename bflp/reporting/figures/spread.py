"""The spread of the global posterior (the Euclidean norm of all standard deviations) over communication rounds."""

from __future__ import annotations

from typing import Any

from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block
from bflp.reporting.figures.curves import draw_panels


@style.styled()
def draw(block: Block) -> Any:
    """A panel per way to weigh the clients, a line per row with a posterior, on a logarithmic axis."""
    figure, grid, drawn = draw_panels(block, block.posterior_rows, ["spread"], 3.0)
    for axes in grid[0] if drawn else ():
        style.log_axis(axes)
    grid[0][0].set_ylabel("Spread (logarithmic)")
    return figure
