"""How all figures look: sizes for print, fonts that stay text, and a colour, dash and marker for each row.

Colours are those of Okabe and Ito (2008), which colour-blind readers tell apart; dashes and markers differ as well, so
that a grey print can be read. Sizes are in inches and points at print size: no text is smaller than 7 points.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bflp import aggregators
from bflp.files import whole_file
from bflp.grid.cell import NO_AGGREGATOR
from bflp.reporting.figures.block import Row

FORMATS = ("pdf", "svg")
FULL_WIDTH = 7.0  # inches: the text's width on a page with two columns
COLUMN_WIDTH = 3.4

_SETTINGS = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "figure.titlesize": 9,
    # TrueType in PDF and text in SVG, so that text can be searched and journals accept the files.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    # The same figure gives the same file.
    "svg.hashsalt": "bflp",
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.88",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 3.0,
    "figure.constrained_layout.use": True,
}

# Blue, orange, green, vermillion, purple, sky blue; black and what is near it is kept for methods without a rule.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
_WITHOUT_RULE = ("black", "#7F7F7F", "#7F4F24")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (4, 1, 1, 1, 1, 1)))
_MARKERS = ("*", "o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")


@dataclass(frozen=True)
class Style:
    """Colour, dash pattern and marker of rows, and what a legend calls them."""

    colour: str
    dash: Any
    marker: str
    label: str

    def line(self) -> dict[str, Any]:
        """Arguments for matplotlib."""
        return {"color": self.colour, "linestyle": self.dash, "marker": self.marker}


def colour(index: int) -> str:
    """The colours in their order, from the start again after the last."""
    return _COLOURS[index % len(_COLOURS)]


def row_styles(rows: Sequence[Row], weights: Mapping[str, str]) -> dict[Row, Style]:
    """A style for each row: colour and marker tell the rule.

    Rows that a panel separates, models with other weights, share a style. Models with the same weights and the same
    rule, or both without one, differ in dash and marker, and the legend names the models, too.
    """
    rules = list(dict.fromkeys([NO_AGGREGATOR, *aggregators.names(), *(rule for _, rule in rows)]))
    # The first, second, ... model with the same rule and weights.
    places = {row: [r for r in rows if r[1] == row[1] and weights[r[0]] == weights[row[0]]].index(row) for row in rows}
    series: dict[tuple[str, int], list[str]] = {}
    for (model, rule), place in places.items():
        series.setdefault((rule, place), []).append(model)
    order = [*((rule, 0) for rule in rules), *(key for key in series if key[1])]
    shared = {rule for rule, place in series if place}
    styles = {}
    for (rule, place), models in series.items():
        index, names, bare = order.index((rule, place)), " / ".join(models), rule == NO_AGGREGATOR
        styles[rule, place] = Style(
            _WITHOUT_RULE[place % len(_WITHOUT_RULE)] if bare else colour(rules.index(rule) - 1),
            _DASHES[index % len(_DASHES)],
            _MARKERS[index % len(_MARKERS)],
            names if bare else f"{names} {rule}" if rule in shared else rule,
        )
    return {row: styles[row[1], place] for row, place in places.items()}


def width_of(columns: int) -> float:
    """The width in inches of a figure with so many panels side by side."""
    return FULL_WIDTH if columns > 1 else FULL_WIDTH * 0.6


@contextmanager
def styled() -> Iterator[None]:
    """The settings of this module, whatever the program has set; a drawing function has it as decorator."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def legend_handles(styles: Iterable[Style]) -> list[Any]:
    """A legend's entries, each style once."""
    return [Line2D([], [], label=style.label, **style.line()) for style in dict.fromkeys(styles)]


def foot_legend(figure: Any, handles: Sequence[Any], notes: Sequence[str] = ()) -> None:
    """A legend below all panels, in as many columns as the figure is wide, with notes in small print above it.

    The figure grows by what more than one line takes, so that the panels keep their size.
    """
    width = figure.get_figwidth()
    longest = max((len(handle.get_label()) for handle in handles), default=1)
    # A column takes its handle and gaps, 0.6 inches, and about 0.06 inches a character.
    columns = max(1, min(len(handles), int(width / (0.6 + 0.06 * longest))))
    lines = -(-len(handles) // columns)
    small_print = [part for note in notes for part in textwrap.wrap(note, int(width * 17))]
    legend = figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=-(-len(handles) // lines),
        columnspacing=1.2,
        title="\n".join(small_print) or None,
        title_fontsize=7,
    )
    legend.get_title().set_multialignment("center")
    figure.set_figheight(figure.get_figheight() + 0.15 * (lines - 1) + 0.14 * len(small_print))


def heading(figure: Any, title: str, detail: str = "") -> None:
    """The figure's title with a detail, on one line where it fits."""
    most = int(figure.get_figwidth() * 13.5)
    whole = f"{title}: {detail}" if detail else title
    figure.suptitle(whole if len(whole) <= most else f"{wrapped(title, most)}\n{wrapped(detail, most)}".strip())


def wrapped(text: str, most: int) -> str:
    """A text in lines of at most so many characters."""
    return "\n".join(textwrap.wrap(text, most))


def log_axis(axes: Any) -> None:
    """Labels at 1, 2 and 5 times each power of ten, as plain numbers: values often stay within one decade."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(LogLocator(subs="all"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def empty_panel(axes: Any, text: str = "no results yet") -> None:
    """Say in a panel that there is nothing to show."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="0.35")


def without_ticks(*panels: Any) -> None:
    """Remove the ticks of panels that show nothing: they would count what is not there."""
    for axes in panels:
        axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
        axes.grid(visible=False)


def thinned(length: int, most: int = 250) -> Any:
    """Indices of at most about `most` of `length` points, first and last among them: more cannot be seen in print."""
    if length <= most:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, most).round().astype(int))


def save(figure: Any, path: Path, formats: Sequence[str] = FORMATS) -> None:
    """Write a figure as `path`.{format} each, and close it. The same figure gives the same bytes."""
    with styled():
        if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
            # Run the layout engine once, not for every format.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            for axes in figure.axes:
                # The solver's last digits differ from run to run, and names within an SVG are made of all digits.
                axes.set_position(np.round(axes.get_position(original=True).bounds, 9))
        for kind in formats:
            metadata = {"CreationDate": None} if kind == "pdf" else {"Date": None}
            with whole_file(path.with_name(f"{path.name}.{kind}")) as temporary:
                figure.savefig(temporary, format=kind, dpi=300, metadata=metadata)
        plt.close(figure)
