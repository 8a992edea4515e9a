"""Figures: what they show, that nothing is cut, and that they survive missing, diverged and many results."""

from __future__ import annotations

import csv
import itertools
import re
import subprocess
import sys
from pathlib import Path

import fabricated_run
import matplotlib.pyplot as plt
import numpy as np
import pytest

from bflp.errors import DataError
from bflp.grid.plan import Plan
from bflp.reporting import figures as plots
from bflp.reporting.figures import reliability, style
from bflp.reporting.figures.block import Block
from bflp.reporting.figures.loading import load_block

PROJECT = Path(__file__).resolve().parents[2]
KINDS = [kind.name for kind in plots.KINDS]


def block_of(folder, wanted=lambda cell: True, diverged=lambda cell: False, **grid):
    plan = Plan(fabricated_run.settings(folder, **grid))
    fabricated_run.make(plan, wanted, frozenset(filter(diverged, plan.cells)))
    block, stale = load_block(plan, *plan.blocks()[0], partial=True)
    assert not stale
    return block


def own_rules(folder, count):
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        (folder / f"own{index}.py").write_text("def aggregate(m, v, w, s, g):\n    return m[0], v[0]\n")
    return {f"OWN{index}": str(folder / f"own{index}.py") for index in range(count)}


CASES = {
    "complete": {},
    "one seed": {"seeds": [0]},
    "half run": {"wanted": lambda cell: cell.aggregator != "PPA" and (cell.model != "FVBWA" or cell.seed > 0)},
    "nothing yet": {"wanted": lambda cell: False},
    "diverged": {"diverged": lambda cell: cell.aggregator == "CF" or (cell.model, cell.seed) == ("FED", 1)},
    "one model": {"models": ["FEDAVG"], "aggregators": []},
    "variational": {"models": ["FVBWA"], "aggregators": ["EAA"]},
    "100 clients": {"clients": [100], "seeds": [0], "rounds": 300, "bins": 100},
    "twenty rules": {"many": 15, "seeds": [0]},
}


@pytest.fixture(scope="module", params=CASES)
def block(request, tmp_path_factory):
    case, folder = dict(CASES[request.param]), tmp_path_factory.mktemp("block")
    if many := case.pop("many", 0):
        files = own_rules(folder / "rules", many)
        case |= {"aggregators": ["EAA", "GAA", "AALV", "PPA", "CF", *files], "aggregator_files": files}
    return block_of(folder, **case)


def visible_texts(figure):
    texts = figure.findobj(lambda artist: hasattr(artist, "get_fontsize") and hasattr(artist, "get_text"))
    # Tick labels outside the axis limits are kept but not drawn.
    hidden = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in itertools.chain(axis.majorTicks, axis.minorTicks)
        for label in (tick.label1, tick.label2)
        if label not in axis.get_ticklabels() or not label.get_visible() or not axis_shows(axis, tick)
    }
    return [text for text in texts if text.get_text() and text.get_visible() and text not in hidden]


def axis_shows(axis, tick):
    low, high = sorted(axis.get_view_interval())
    return low - 1e-9 <= tick.get_loc() <= high + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_small_cut_or_over_another(kind, block):
    if kind == "spread" and not block.aggregators():
        pytest.skip("no model with posteriors")
    figure = plots.draw(kind, block)
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


@pytest.mark.parametrize("kind", KINDS)
def test_files_have_text_and_true_type_fonts_and_are_the_same_each_time(kind, tmp_path, complete):
    for name in ("one", "two"):
        plots.save(plots.draw(kind, complete), tmp_path / name)
    for suffix in plots.FORMATS:
        assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()
    pdf = (tmp_path / "one.pdf").read_bytes()
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf
    svg = (tmp_path / "one.svg").read_text()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert any("synthetic, non-IID, 10 clients" in text for text in texts)
    assert all(float(size) >= 7 for size in re.findall(r"font: (?:\w+ )?([0-9.]+)px", svg))
    if kind in ("learning_curves", "accuracy_ece"):
        assert {"FED / FEDAVG", "EAA", "GAA", "AALV", "PPA", "CF", "Accuracy (%)", "ECE (%)"} <= set(texts)


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    return block_of(tmp_path_factory.mktemp("complete"))


def test_rules_differ_without_colour():
    looks = style.rule_styles(["none", "EAA", "GAA", "AALV", "PPA", "CF", *(f"OWN{index}" for index in range(20))])
    assert len({(str(look.dash), look.marker) for look in looks.values()}) == len(looks)


def test_a_rule_looks_the_same_in_every_grid():
    assert style.rule_styles(["CF"])["CF"] == style.rule_styles(["none", "EAA", "OWN", "CF"])["CF"]


def test_curves_are_means_over_the_seeds_that_have_run(complete):
    row = ("FVBA", "EAA")
    values = [[entry["ece"] for entry in complete.results[row][seed]["rounds"]] for seed in complete.seeds]
    curve = complete.curve(row, "ece")
    np.testing.assert_allclose(curve.mean, np.mean(values, axis=0))
    np.testing.assert_allclose(curve.error, np.std(values, axis=0, ddof=1) / np.sqrt(3))
    one = Block("d", "iid", 10, [row], [0, 1], {row: {0: complete.results[row][0]}})
    np.testing.assert_allclose(one.curve(row, "ece").mean, values[0])
    assert np.isnan(one.curve(row, "ece").error).all()


def test_curve_ends_where_the_first_seed_diverged(tmp_path):
    block = block_of(tmp_path, diverged=lambda cell: cell.seed == 1, models=["FED"], aggregators=[])
    curve = block.curve(("FED", "none"), "accuracy")
    assert curve.rounds.tolist() == [1, 2, 3, 4]
    assert np.isnan(block.final(("FED", "none"), "accuracy")[0])
    assert block.gaps(block.rows) == ["Diverged: FED (1/3)"]


def test_label_counts_are_those_of_the_partition(complete):
    assert complete.label_counts.shape == (10, 10)
    assert complete.label_counts.sum() == 4000


def test_bins_are_pooled_over_seeds_and_neighbours():
    cell = {"counts": [0] * 50 + [2] * 50, "correct": [0] * 50 + [1] * 50, "confidence": [0.0] * 100}
    edges, accuracy, share = reliability.pooled_bins([cell, {**cell, "correct": [0] * 50 + [2] * 50}])
    assert edges.tolist() == list(np.linspace(0, 100, 21))
    assert np.isnan(accuracy[:10]).all() and accuracy[10:].tolist() == [75.0] * 10
    np.testing.assert_allclose(share, [0] * 10 + [0.1] * 10)


def test_many_rounds_are_thinned_and_keep_both_ends():
    points = style.thinned(500)
    assert len(points) == 250 and points[0] == 0 and points[-1] == 499
    assert style.thinned(50).tolist() == list(range(50))


def test_round_times(tmp_path):
    with (PROJECT / "bflp/paper/published/round_time.csv").open() as file:
        published = list(csv.DictReader(file))
    other = [{**line, "clients": "10", "standard_error": "", "aggregator": "none"} for line in published[:3]]
    for name, lines in {"published": published, "two": published + other, "empty": []}.items():
        plots.save(plots.draw_round_time(lines), tmp_path / name)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "published.svg").read_text())
    assert {"CIFAR-10, IID, 100 clients: time per communication round", "ideal speed-up", "FED / FEDAVG"} <= set(texts)
    assert {"Training time per round (s)", "Worker processes", "1", "5", "10"} <= set(texts)


def program(*arguments):
    command = [sys.executable, PROJECT / "workflow/scripts/figures.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_program_draws_what_has_run_only_when_told_so(tmp_path):
    plan = Plan(fabricated_run.settings(tmp_path, models=["FED"], aggregators=[], partitions=["iid", "noniid"]))
    fabricated_run.make(plan, lambda cell: cell.seed < 2 and cell.partition == "iid")
    settings = ("--settings", plan.settings.canonical())
    done = program(*settings)
    assert done.returncode == 1 and "there is no result" in done.stderr and "Traceback" not in done.stderr
    done = program(*settings, "--partial")
    assert done.returncode == 0, done.stderr
    drawn_files = {str(path.relative_to(plan.results / "figures_partial")) for path in plan.results.rglob("*.svg")}
    kinds = {kind.name for kind in plots.kinds(plan.settings)}
    assert drawn_files == {f"synthetic/{name}/10/{kind}.svg" for name in ("iid", "noniid") for kind in kinds}
    done = program(*settings, "--block", "synthetic/iid/100")
    assert done.returncode == 1 and "error: the block synthetic/iid/100 is not in the grid" in done.stderr


def test_damaged_label_counts_are_named(tmp_path):
    plan = Plan(fabricated_run.settings(tmp_path, models=["FED"], aggregators=[], seeds=[0]))
    fabricated_run.make(plan)
    counts = plan.partition_file(plan.cells[0]).with_suffix(".csv")
    counts.write_text("client,samples,label0\n0,x,y\n")
    with pytest.raises(DataError, match=re.escape(str(counts))):
        load_block(plan, *plan.blocks()[0])
