"""How all figures look: sizes for print, fonts that stay text, and a colour, dash and marker for each rule.

Colours are those of Okabe and Ito (2008), which colour-blind readers tell apart; dashes and markers differ as well, so
that a grey print can be read. Sizes are in inches and points at print size: no text is smaller than 7 points.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from bflp import aggregators
from bflp.files import whole_file
from bflp.grid.plan import NO_AGGREGATOR

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

# Blue, orange, green, vermillion, purple, sky blue; black is kept for the models without a rule.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (4, 1, 1, 1, 1, 1)),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")


@dataclass(frozen=True)
class RuleStyle:
    """Colour, dash pattern and marker."""

    colour: str
    dash: Any
    marker: str


def colour(index: int) -> str:
    """The colours in their order, from the start again after the last."""
    return _COLOURS[index % len(_COLOURS)]


def rule_styles(rules: Sequence[str]) -> dict[str, RuleStyle]:
    """A style for each rule; the built-in ones have the same in every figure of every grid."""
    built_in = aggregators.built_in()
    order = [*built_in, *(rule for rule in rules if rule not in built_in and rule != NO_AGGREGATOR)]
    styles = {
        rule: RuleStyle(_COLOURS[index % len(_COLOURS)], _DASHES[index % len(_DASHES)], _MARKERS[index % len(_MARKERS)])
        for index, rule in enumerate(order)
    }
    styles[NO_AGGREGATOR] = RuleStyle("black", "-", "*")
    return {rule: styles[rule] for rule in rules}


def styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Give a drawing function the settings of this module, whatever the program that calls it has set."""

    @wraps(draw)
    def drawn(*arguments: Any, **named: Any) -> Any:
        with _settings():
            return draw(*arguments, **named)

    return drawn


@contextmanager
def _settings() -> Iterator[None]:
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def rule_handles(styles: Mapping[str, RuleStyle], deterministic: str) -> list[Any]:
    """A legend's entries for the rules; `deterministic` names the models without one."""
    return [
        Line2D(
            [],
            [],
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            label=deterministic if rule == NO_AGGREGATOR else rule,
        )
        for rule, style in styles.items()
    ]


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
    figure.suptitle(heading_text(title, detail, figure.get_figwidth()))


def heading_text(title: str, detail: str, width: float) -> str:
    """Title and detail for a figure of so many inches."""
    most = int(width * 13.5)
    if len(title) + len(detail) + 2 <= most:
        return f"{title}: {detail}" if detail else title
    return "\n".join(line for text in (title, detail) for line in textwrap.wrap(text, most))


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


def save(figure: Any, path: Path, formats: Sequence[str]) -> None:
    """Write a figure as `path`.{format} each, and close it. The same figure gives the same bytes."""
    with _settings():
        if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
            # Find all places once, not anew for every format.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        for kind in formats:
            metadata = {"CreationDate": None} if kind == "pdf" else {"Date": None}
            with whole_file(path.with_name(f"{path.name}.{kind}")) as temporary:
                figure.savefig(temporary, format=kind, dpi=300, metadata=metadata)
        plt.close(figure)
