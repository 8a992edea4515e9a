"""Metrics of the final models against the value of a setting that is swept, a line per method and rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bflp.engine.metrics.registry import METRICS
from bflp.reporting.figures import style
from bflp.reporting.figures.block import Block, Row
from bflp.reporting.titles import row_title
from bflp.settings.sweeps import shown_value

# From this ratio of the largest to the smallest value on the axis is logarithmic.
DECADE = 10
# Line -> (value, row) each.
Lines = Mapping[Row, Sequence[tuple[Any, Row]]]


@style.styled()
def draw(block: Block) -> Any:
    """A line of panels per metric of the tables, a column per setting; where a method sweeps several, its first is on
    the axis, and each combination of the others is a line. A ring marks what is chosen on held-out samples."""
    columns = lines_of(block)
    labels = list(dict.fromkeys(line for lines in columns.values() for line in lines))
    # No panels by weights here, so all lines differ.
    looks = style.row_styles(labels, dict.fromkeys((model for model, _ in labels), "data"))
    styles = {line: replace(look, label=row_title(line)) for line, look in looks.items()}
    metrics = [METRICS[name] for name in block.metrics]
    size = (style.width_of(len(columns)), 2.1 * len(metrics))
    figure, grid = plt.subplots(len(metrics), len(columns), figsize=size, sharex="col", sharey="row", squeeze=False)
    for panels, metric in zip(grid, metrics, strict=True):
        panels[0].set_ylabel(metric.title)
        for axes, lines in zip(panels, columns.values(), strict=True):
            place = _axis(axes, [value for points in lines.values() for value, _ in points])
            for line, points in lines.items():
                _draw_line(axes, block, metric.name, [(place(value), row) for value, row in points], styles[line])
            if not axes.containers:
                style.empty_panel(axes, "no final results yet")
    for axes, setting in zip(grid[-1], columns, strict=True):
        axes.set_xlabel(setting)
    style.heading(figure, block.title, f"final models, {block.over_seeds()}")
    rows = [row for lines in columns.values() for points in lines.values() for _, row in points]
    notes = ["Ring: chosen on held-out samples."] if block.chosen else []
    style.foot_legend(figure, style.legend_handles(styles.values()), [*notes, *block.gaps(rows)])
    figure.align_ylabels()
    return figure


def lines_of(block: Block) -> Mapping[str, Lines]:
    """The lines of each panel, by the setting on its axis."""
    columns: dict[str, dict[Row, list[tuple[Any, Row]]]] = {}
    for name, rows in block.sweeps.items():
        for row, values in rows.items():
            (setting, value), *others = values.items()
            words = [f"{key.rpartition('.')[2]} {shown_value(other)}" for key, other in others]
            line = ", ".join([name, *words]), row[1]
            columns.setdefault(setting, {}).setdefault(line, []).append((value, row))
    return columns


def _draw_line(axes: Any, block: Block, metric: str, points: Sequence[tuple[float, Row]], look: style.Style) -> None:
    points = sorted(points)
    places, finals = [place for place, _ in points], [block.final(row, metric) for _, row in points]
    means, errors = np.array(finals).T
    if np.isnan(means).all():
        return
    shown = None if np.isnan(errors).all() else np.nan_to_num(errors)
    axes.errorbar(places, means, yerr=shown, elinewidth=0.8, capsize=1.5, **look.line())
    ringed = [index for index, (_, row) in enumerate(points) if row in block.chosen]
    axes.plot([places[index] for index in ringed], means[ringed], "o", markersize=9, mfc="none", color=look.colour)


def _axis(axes: Any, values: Sequence[Any]) -> Callable[[Any], float]:
    """Set up the axis of a panel, logarithmic for numbers over decades; return where a value is on it. Words and other
    values are beside one another in their order."""
    try:
        numbers = {shown_value(value): float(value) for value in values if not isinstance(value, bool)}
    except (TypeError, ValueError):
        numbers = {}
    words = dict.fromkeys(map(shown_value, values))
    places = numbers if len(numbers) == len(words) else {word: float(index) for index, word in enumerate(words)}
    if places is numbers and min(places.values()) > 0 and max(places.values()) >= DECADE * min(places.values()):
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(list(places.values()), list(places))
    return lambda value: places[shown_value(value)]
