"""Critical difference diagrams (Demšar, 2006): average ranks over blocks, bars over rows that are not told apart."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bflp.reporting.figures import style
from bflp.reporting.statistics.analysis import Compared, Statistics
from bflp.reporting.statistics.paired import LEVEL
from bflp.reporting.statistics.ranks import Ranks, not_told_apart
from bflp.reporting.statistics.words import about_ranks

_STEP = 0.17  # inches between two names
_BAR = 0.6  # of a step between two bars
_ABOVE = 0.45  # inches above the scale
_LETTER = 0.07  # inches
_GAP = 0.05  # inches between a line and its text; browsers drop spaces at the ends of a text


@style.styled()
def draw(statistics: Statistics) -> Any:
    """A diagram per metric, one below the other; where rows and blocks do not allow it, what they would need."""
    allowed = [compared for compared in statistics.compared if compared.ranks and compared.ranks.allowed]
    heights = [_ABOVE + _STEP * (_BAR * _bars(compared) + (len(compared.ranked) + 1) // 2 + 1) for compared in allowed]
    figure, grid = plt.subplots(
        max(len(allowed), 1),
        1,
        figsize=(style.FULL_WIDTH, sum(heights) + 0.25 * len(allowed) + 0.5),
        height_ratios=heights or None,
        squeeze=False,
    )
    for axes in grid[:, 0]:
        axes.set(xticks=[], yticks=[])
        axes.set_axis_off()
    for axes, compared, height in zip(grid[:, 0], allowed, heights, strict=False):
        assert compared.ranks is not None
        names = [statistics.names()[row] for row in compared.ranked]
        _diagram(axes, compared.ranks, names, height)
        axes.set_title(f"{compared.metric.title}, {_friedman(compared.ranks)}")
    style.heading(figure, "Average ranks", "" if allowed else about_ranks(statistics) or "no block has all rows")
    return figure


def _bars(compared: Compared) -> int:
    assert compared.ranks is not None
    return len(not_told_apart(np.sort(compared.ranks.average), compared.ranks.critical_difference))


def _friedman(ranks: Ranks) -> str:
    if not ranks.p < LEVEL:
        return f"{ranks.blocks} blocks: no two are told apart (Friedman p = {ranks.p:.2g})"
    return f"{ranks.blocks} blocks (Friedman p = {ranks.p:.1g}); bars: not told apart"


def _diagram(axes: Any, ranks: Ranks, names: list[str], height: float) -> None:
    """Ranks from left, the best, to right, with a scale above; y is in inches, 0 at the scale."""
    order = np.argsort(ranks.average, kind="stable")
    sorted_ranks, rows = ranks.average[order], len(order)
    # Beside the scale, in inches: the longest name with its rank.
    margin = _LETTER * (max(map(len, names)) + 8)
    inch = (rows - 1) / max(style.FULL_WIDTH - 2 * margin, 1.0)
    axes.set_xlim(1 - margin * inch, rows + margin * inch)
    axes.set_ylim(_ABOVE - height, _ABOVE)
    black: dict[str, Any] = {"color": "black", "linewidth": 0.8}
    axes.plot([1, rows], [0, 0], **black)
    for rank in range(1, rows + 1):
        axes.plot([rank, rank], [0, 0.05], **black)
        axes.text(rank, 0.07, str(rank), ha="center", va="bottom", fontsize=7)
    width = ranks.critical_difference
    axes.plot([1, 1 + width], [0.3, 0.3], color="black", linewidth=1.5, marker="|")
    axes.text(1 + width + _GAP * inch, 0.3, f"critical difference {width:.2f}", ha="left", va="center", fontsize=7)
    bars = not_told_apart(sorted_ranks, width)
    for level, (first, last) in enumerate(bars, start=1):
        ends = [sorted_ranks[first] - 0.06 * inch, sorted_ranks[last] + 0.06 * inch]
        axes.plot(ends, [-_BAR * _STEP * level] * 2, color="black", linewidth=2.5)
    deepest = _BAR * _STEP * len(bars)
    for place, (index, rank) in enumerate(zip(order, sorted_ranks, strict=True)):
        left = place < (rows + 1) // 2
        y = -deepest - _STEP * (1 + (place if left else rows - 1 - place))
        end, side = (1 - 0.15 * inch, "right") if left else (rows + 0.15 * inch, "left")
        axes.plot([rank, rank, end], [0, y, y], **black)
        text = f"{names[index]} {rank:.2f}" if left else f"{rank:.2f} {names[index]}"
        axes.text(end + (-_GAP if left else _GAP) * inch, y, text, ha=side, va="center", fontsize=7)
