"""Figures: nothing is cut or hidden, no row is left out, and they survive missing, diverged and many results."""

from __future__ import annotations

import csv
import itertools
import re
from pathlib import Path
from typing import Any

import made_up_grid
import matplotlib.pyplot as plt
import pytest
from published_numbers import PUBLISHED, paper

from bflp.reporting import figures
from bflp.reporting.figures import learning_curves, round_time, style
from bflp.reporting.titles import row_title

# Methods of four kinds: without a rule, with shared rules, with rules of their own, with a server step of their own.
MANY = {
    **made_up_grid.PAPER,
    "FEDPROX": ("data", ()),
    "SCAFFOLD": ("data", ()),
    "FEDADAM": ("equal", ()),
    "FVBWA-WIDE": ("data", made_up_grid.RULES),
    "IVON": ("data", ("RKL", "W2")),
    "PVI": ("data", ()),
}
# Of one setting over decades, of two settings, of one whose values are words; "LR" also with three rules.
SWEEPS: dict[str, dict[str, dict[str, Any]]] = {
    "LR": {f"LR-{rate}": {"training.learning_rate": rate} for rate in (0.001, 0.01, 0.1)},
    "BOTH": {
        f"BOTH-{rate}-{momentum}": {"training.learning_rate": rate, "training.momentum": momentum}
        for rate in (0.01, 0.03)
        for momentum in (0.0, 0.9)
    },
    "NET": {f"NET-{name}": {"network.name": name} for name in ("lenet", "mlp")},
    "CLIP": {f"CLIP-{name}": {"training.clip_norm": value} for name, value in (("null", None), ("10", 10))},
}
SWEPT = {row: ("data", ("EAA", "CF", "W2") if name == "LR" else ()) for name, rows in SWEEPS.items() for row in rows}
RULES = (*made_up_grid.RULES, *(f"OWN{index}" for index in range(15)))
# What a grid and its results are like: arguments of made_up_grid.plan, and of made_up_grid.block.
CASES = {
    "complete": ({}, {}),
    "one seed": ({"seeds": [0]}, {}),
    "half run": (
        {},
        {"wanted": lambda row, seed: row[1] != "PPA" and (row[0] != "FVBWA" or seed > 0)},
    ),
    "nothing yet": ({}, {"wanted": lambda row, seed: False}),
    "diverged": ({}, {"diverged": lambda row, seed: row[1] == "CF" or (row[0], seed) == ("FED", 1)}),
    "one model": ({"methods": {"FEDAVG": ("data", ())}}, {}),
    "posterior": ({"methods": {"FVBWA": ("data", ("EAA",))}}, {}),
    "100 clients": ({"setups": ["100"], "seeds": [0]}, {"rounds": 300, "bins": 100}),
    "named setup": ({"setups": {"100-half": 100}}, {}),
    "twenty rules": ({"methods": {"FED": ("equal", ()), "FVBA": ("equal", RULES)}, "seeds": [0]}, {}),
    "many methods": (
        {"methods": MANY, "posteriors": ["PVI"]},
        {"diverged": lambda row, seed: row == ("FVBWA", "CF"), "wanted": lambda row, seed: row != ("FVBA", "PPA")},
    ),
    "sweeps": ({"methods": SWEPT, "sweeps": SWEEPS}, {"diverged": lambda row, seed: row[0] == "LR-0.1"}),
    "sweeps that have not run": ({"methods": SWEPT, "sweeps": SWEEPS}, {"wanted": lambda row, seed: False}),
    "no built-in name": ({"methods": {"A": ("equal", ("Z",)), "B": ("equal", ("Z",)), "C": ("data", ())}}, {}),
}


def block_of(case):
    grid, results = CASES[case]
    return made_up_grid.block(made_up_grid.plan(**grid), **results)


def visible_texts(figure):
    texts = figure.findobj(lambda artist: hasattr(artist, "get_fontsize") and hasattr(artist, "get_text"))
    # Tick labels outside the axis limits are kept but not drawn.
    hidden = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        drawn = {label for label in axis.get_ticklabels() if label.get_visible()}
        for tick in itertools.chain(axis.majorTicks, axis.minorTicks):
            hidden |= {tick.label1, tick.label2} - (drawn if axis_shows(axis, tick) else set())
    return [text for text in texts if text.get_text() and text.get_visible() and text not in hidden]


def axis_shows(axis, tick):
    low, high = sorted(axis.get_view_interval())
    return low - 1e-9 <= tick.get_loc() <= high + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", figures.FIGURES)
def test_no_text_is_small_cut_or_over_another(name, case):
    block = block_of(case)
    if name == "spread" and not block.posterior_rows:
        pytest.skip("no model with a posterior")
    if name == "sweep" and not block.sweeps:
        pytest.skip("no sweep")
    figure = figures.draw(name, block)
    figure.draw_without_rendering()
    frame = figure.bbox.padded(1)
    boxes = []
    for text in visible_texts(figure):
        assert text.get_fontsize() >= 7, text.get_text()
        box = text.get_window_extent()
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1, text.get_text()
        boxes.append((text.get_text(), box.padded(-1)))
    plt.close(figure)
    assert len(boxes) > 5
    for (one, box), (other, other_box) in itertools.combinations(boxes, 2):
        assert not box.overlaps(other_box), f"{one!r} over {other!r}"


@pytest.mark.slow
@pytest.mark.parametrize("name", figures.FIGURES)
def test_files_have_text_and_true_type_fonts_and_are_the_same_each_time(name, tmp_path):
    block = block_of("sweeps" if name == "sweep" else "complete")
    for file in ("one", "two"):
        style.save(figures.draw(name, block), tmp_path / file)
    for suffix in style.FORMATS:
        assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()
    pdf = (tmp_path / "one.pdf").read_bytes()
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf
    svg = (tmp_path / "one.svg").read_text()
    assert any("synthetic, non-IID, 10 clients" in text for text in texts_of(tmp_path / "one.svg"))
    assert all(float(size) >= 7 for size in re.findall(r"font: (?:\w+ )?([0-9.]+)px", svg))


def texts_of(svg: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("case", ["complete", "many methods", "no built-in name"])
def test_every_row_is_shown(case):
    """A line in each panel of curves, a point, a diagram: none is left out, whatever its method is called."""
    block = block_of(case)
    ran = [row for row in block.rows if block.of(row)]
    whole = [row for row in ran if not block.diverged(row)]
    figure = figures.draw("learning_curves", block)
    crosses = len(ran) - len(whole)
    assert sum(len(axes.lines) for axes in figure.axes) == 3 * (len(ran) + crosses)
    assert len(figures.draw("accuracy_ece", block).axes[0].containers) == len(whole)
    panels = figures.draw("reliability", block).axes
    titles = [axes.get_title().replace("\n", " ") for axes in panels if axes.get_title()]
    assert sorted(titles) == sorted(map(row_title, block.rows))
    assert sum("ECE" in text.get_text() for axes in panels for text in axes.texts) == len(whole)
    curves = figures.draw("spread", block)
    with_spread = [row for row in block.posterior_rows if row in ran and row[1] != "none"]
    assert sum(len(axes.lines) for axes in curves.axes) == len(with_spread) + crosses
    plt.close("all")


def test_legend_names_rules_or_where_they_are_shared_methods_too():
    def legend(case):
        figure = figures.draw("learning_curves", block_of(case))
        plt.close(figure)
        return [text.get_text() for text in figure.legends[0].get_texts()]

    assert legend("complete") == ["FED / FEDAVG", "EAA", "GAA", "AALV", "PPA", "CF"]
    assert legend("no built-in name") == ["A Z", "B Z", "C"]
    many = legend("many methods")
    assert many[:2] == ["FED / FEDAVG", "FVBA / FVBWA EAA"]
    assert many[6:] == [
        *("FEDPROX / FEDADAM", "SCAFFOLD"),
        *(f"FVBWA-WIDE {rule}" for rule in made_up_grid.RULES),
        *("RKL", "W2", "PVI"),
    ]


@pytest.mark.parametrize(
    ("bins", "label"),
    [({0: 15}, "ECE (%), 15 bins"), ({0: 100, 1: 15}, "ECE (%), 15 or 100 bins")],
)
def test_ece_axis_names_the_bins_of_the_curves(bins, label):
    block = block_of("complete")
    for number, found in enumerate(block.results.values()):
        for seed, record in found.items():
            own = {"curve_ece_bins": bins.get(number + seed, bins[0])}
            record.result.environment = record.result.environment.model_copy(update=own)
    figure = learning_curves.draw(block)
    plt.close(figure)
    assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()] == ["Accuracy (%)", label, "NLL"]


@pytest.mark.slow
def test_round_times(tmp_path):
    with (PUBLISHED / "round_time.csv").open() as file:
        published = list(csv.DictReader(file))
    published = [{**line, "aggregator": line["aggregator"].replace("N/A", "none")} for line in published]
    style.save(round_time.draw(paper(), published), tmp_path / "published")
    texts = texts_of(tmp_path / "published.svg")
    assert {"CIFAR-10, IID, 100 clients: time per communication round", "ideal speed-up", "FED / FEDAVG"} <= set(texts)
    assert {"Training time per round (s)", "Worker processes", "1", "5", "10"} <= set(texts)
    for lines in ([*published, {**published[0], "clients": "10"}], []):
        with pytest.raises(ValueError, match="values to unpack"):
            round_time.draw(paper(), lines)
