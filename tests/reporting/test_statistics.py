"""The statistics of a grid: what is compared, what the paragraph says, the tables, the figures and the command."""

from __future__ import annotations

import argparse
import itertools
import re
from collections import Counter
from pathlib import Path

import fabricated_run
import numpy as np
import pandas as pd
import published_numbers
import pytest
from pydantic import ValidationError
from reporting.test_drawing import visible_texts
from scipy import stats

from bflp.cli import statistics as command
from bflp.engine.metrics.registry import METRICS
from bflp.errors import ConfigError
from bflp.reporting.figures import differences, rank_diagram, style
from bflp.reporting.formats import FORMATS
from bflp.reporting.statistics.analysis import analyse
from bflp.reporting.statistics.table import statistics_tables
from bflp.reporting.statistics.words import summary
from bflp.reporting.titles import reference_row
from bflp.results.notebook import load_results
from bflp.settings.sections import StatisticsSettings

PROJECT = Path(__file__).resolve().parents[2]
ROWS = [("FEDAVG", "none"), ("FVBWA", "EAA"), ("FVBWA", "GAA")]
BLOCKS = [("mnist", "iid", "10"), ("mnist", "noniid", "10")]


def frame_of(gains, seeds=5, noise=0.3, rows=ROWS, blocks=BLOCKS):
    """Results whose accuracy lies gains[row] above the reference's, with the other metrics in step."""
    generator = np.random.default_rng(0)
    lines = []
    for block, seed in itertools.product(blocks, range(seeds)):
        shared = 5 * generator.standard_normal()  # what the seed does to all rows
        for row, gain in zip(rows, gains, strict=True):
            accuracy = 70 + shared + gain + noise * generator.standard_normal()
            numbers = {"accuracy": accuracy, "ece": 10 - gain, "nll": 2 - accuracy / 50}
            names = dict(zip(("dataset", "partition", "clients", "model", "aggregator"), (*block, *row), strict=True))
            lines.append({**names, "seed": seed, "diverged": False, **numbers})
    return pd.DataFrame(lines)


def analysed(frame, seeds=5, rows=ROWS, blocks=BLOCKS, **settings):
    return analyse(frame, rows, blocks, range(seeds), StatisticsSettings(**settings), METRICS)


def of(statistics, metric):
    return next(compared for compared in statistics.compared if compared.name == metric)


def test_differences_are_paired_by_seed_whatever_the_order_of_the_frame():
    frame = frame_of([0, 2, -2])
    compared = of(analysed(frame.sample(frac=1, random_state=1)), "accuracy")
    block = frame[frame["partition"] == "noniid"].set_index(["aggregator", "seed"])["accuracy"]
    expected = stats.ttest_rel(block["EAA"], block["none"])
    assert compared.by_block.p[1, 1] == pytest.approx(expected.pvalue)
    assert compared.by_block.difference[1, 1] == pytest.approx((block["EAA"] - block["none"]).mean())
    assert compared.outcomes.tolist() == [[0, 2, 0], [0, 0, 2], [2, 0, 0]]
    assert compared.improvement[0].tolist() == [0.5, 1.0, 0.0]


def test_the_paragraph_says_what_was_put_in():
    text = summary(analysed(frame_of([0, 3, -3]), equivalence={"accuracy": 0.5, "nll": 0.01}))
    assert re.search(r"Accuracy \(%\): of 2 blocks with all rows, best mean of FVBWA EAA in 2 \(MNIST IID 10; ", text)
    assert re.search(r"; better: FVBWA EAA \+[23]\.\d\d \[.*\] \(2 won, 0 tied, 0 lost\); worse: FVBWA GAA -", text)
    # More is worse for NLL.
    assert re.search(r"NLL: .* better: FVBWA EAA -0\.\d{3} .*; worse: FVBWA GAA \+0", text)
    assert "ECE" not in text
    assert (
        "Holm-corrected over the 8 questions" in text
        and "p = 0.0625 at best), so nothing is claimed of a single block." in text
    )
    assert "3 rows need 10 blocks that have them all, there are 2." in text


def test_small_differences_are_the_same_and_noisy_ones_cannot_be_told():
    text = summary(analysed(frame_of([0, 0.02, 0.0], noise=0.05), equivalence={"accuracy": 0.5}))
    assert "the same within 0.5: all other rows" in text and "better" not in text.split("Better")[0]
    text = summary(analysed(frame_of([0, 0.1, 0], noise=3), equivalence={"accuracy": 0.5}))
    assert "cannot be told from no difference: all other rows" in text
    text = summary(analysed(frame_of([0, 0, 0], noise=0), equivalence={"accuracy": 0.5}))
    assert "no different in any run: all other rows" in text and "Nothing is claimed" in text
    # Differences that cancel are differences.
    frame = frame_of([0, 0, 0], 4, noise=0, blocks=BLOCKS[:1])
    frame.loc[frame["aggregator"] == "EAA", "accuracy"] += [0.25, -0.25, 0.5, -0.5]
    text = summary(analysed(frame, 4, blocks=BLOCKS[:1], equivalence={"accuracy": 0.5}))
    assert "no different in any run: FVBWA GAA" in text and "not enough seeds to say: FVBWA EAA" in text
    # Eight seeds are enough, but numbers that never vary have no t test.
    frame = frame_of([0, 0, 0], 8, noise=0, blocks=BLOCKS[:1]).round(2)
    frame["accuracy"] += 1.0 * (frame["aggregator"] == "EAA") - 0.5 * (frame["aggregator"] == "GAA")
    text = summary(analysed(frame, 8, blocks=BLOCKS[:1], equivalence={"accuracy": 0.5}))
    assert "differs by the same in every run of a block, so that no test applies: FVBWA EAA +1.00, FVBWA GAA -0" in text
    assert "not enough seeds" not in text and "and differences that vary within a block." in text


def test_a_difference_of_just_what_matters_is_a_tie_however_it_is_rounded():
    frame = frame_of([0, 0, 0], 2, blocks=BLOCKS[:1])
    frame["accuracy"] = frame["aggregator"].map({"none": 60.0, "EAA": 60.1, "GAA": 59.9})
    assert 60.1 - 60.0 > 0.1 and 60.0 - 59.9 > 0.1
    compared = of(analysed(frame, 2, blocks=BLOCKS[:1], equivalence={"accuracy": 0.1}), "accuracy")
    assert compared.outcomes.tolist() == [[0, 1, 0]] * 3


def test_typical_differences_are_told_from_five_blocks_on():
    for count in (4, 5):
        blocks = [(f"data{index}", "iid", "10") for index in range(count)]
        typical = of(analysed(frame_of([0, 3, -3], 2, blocks=blocks), 2, blocks=blocks), "accuracy").typical
        assert np.isnan(typical).all() if count < 5 else np.allclose(typical.sum(axis=1), 1)


def test_five_seeds_of_one_block_claim_nothing_and_six_do():
    five, six = (summary(analysed(frame_of([0, 3, -3], n, blocks=BLOCKS[:1]), n, blocks=BLOCKS[:1])) for n in (5, 6))
    assert "Nothing is claimed" in five and "not enough seeds to say: all other rows" in five
    assert "; better: FVBWA EAA +" in six and "of a single block" not in six


def test_what_is_missing_or_diverged_is_left_out_and_named():
    frame = frame_of([0, 3, -3])
    gone = (frame["aggregator"] == "EAA") & (frame["partition"] == "iid") & (frame["seed"] > 2)
    broken = (frame["aggregator"] == "GAA") & (frame["partition"] == "iid") & (frame["seed"] == 1)
    frame.loc[broken, ["diverged", "accuracy", "ece", "nll"]] = [True, None, None, None]
    statistics = analysed(frame[~gone])
    compared = of(statistics, "accuracy")
    assert compared.overall.pairs.tolist() == [10, 8, 5]
    assert np.isnan(compared.by_block.difference[2, 0])
    text = summary(statistics)
    assert "Left out: FVBWA GAA in mnist/iid/10, where it diverged with seed 1; 2 of 10 runs of FVBWA EAA" in text
    assert "of 1 block with all rows" in text
    # Ranks and best means compare rows over the seeds that all have.
    noniid = frame[frame["partition"] == "noniid"].groupby("aggregator")["accuracy"].mean()
    assert compared.means[:, 1] == pytest.approx([noniid["none"], noniid["EAA"], noniid["GAA"]])


def test_runs_that_are_not_evaluated_are_left_out_and_named():
    frame = frame_of([0, 3, -3])
    frame.loc[(frame["aggregator"] == "EAA") & (frame["seed"] == 4), ["accuracy", "ece", "nll"]] = None
    statistics = analysed(frame)
    assert of(statistics, "accuracy").overall.pairs.tolist() == [10, 8, 10]
    assert summary(statistics).endswith("Left out: 2 of 10 runs of FVBWA EAA, missing or not evaluated.")


@pytest.mark.parametrize("seeds", [0, 1])
def test_one_seed_claims_nothing(seeds):
    frame = frame_of([0, 3, -3])
    text = summary(analysed(frame[frame["seed"] < seeds], seeds=1))
    assert "Nothing is claimed" in text and not re.search("better|worse|the same", text)
    assert text.count("not enough seeds to say: all other rows") == 3


def test_mistakes_are_told_in_a_line():
    frame = frame_of([0, 1, 2])
    with pytest.raises(ConfigError, match=r"statistics.reference: there is no row 'FVBWA' .*mean 'FVBWA .*FVBWA GAA"):
        analysed(frame, reference="FVBWA")
    with pytest.raises(ValidationError, match=r"unknown 'acuracy' - did you mean 'accuracy'"):
        StatisticsSettings(equivalence={"acuracy": 1})
    assert reference_row(None, ROWS[1:]) == 0 and reference_row("FVBWA GAA", ROWS) == 2


def test_tables_have_every_row_in_every_format():
    statistics = analysed(frame_of([0, 3, -3]))
    overall, by_block = statistics_tables(statistics)
    for table in (overall, by_block):
        assert all(len(values) == len(table.columns) for _, rows in table.blocks for _, values in rows)
        assert sum(width for _, width in table.groups) == len(table.columns)
        for render in FORMATS.values():
            assert "EAA" in render(table) and "nan" not in render(table)
    assert overall.caption.startswith(summary(statistics))
    assert [values[2] for _, values in overall.blocks[0][1]] == ["", "better", "worse"]


def test_columns_of_blocks_are_called_as_elsewhere():
    blocks = [("mnist", "iid", setup) for setup in ("1", "10", "100-half")]
    _, by_block = statistics_tables(analysed(frame_of([0, 3, -3], blocks=blocks), blocks=blocks))
    assert [title for title, _ in by_block.groups] == ["IID, 1 client", "IID, 10 clients", "IID, 100-half"]


def kept(variant, *, without=()):
    frame = load_results(PROJECT / "docs/reproduction" / variant)
    frame = frame[~frame["model"].isin(without)]
    rows = list(dict.fromkeys(zip(frame["model"], frame["aggregator"], strict=True)))
    blocks = list(dict.fromkeys(zip(frame["dataset"], frame["partition"], frame["clients"], strict=True)))
    return analyse(frame, rows, blocks, sorted(set(frame["seed"])), StatisticsSettings(), METRICS), frame


@pytest.mark.parametrize("variant", ["reference", "exact", "project"])
def test_kept_cells_are_too_few_to_claim_anything(variant):
    statistics, _ = kept(variant)
    text = summary(statistics)
    assert "Nothing is claimed" in text and not re.search("better|worse|the same", text)


def test_best_of_the_kept_cells():
    # Where clients are equal FED is FEDAVG and FVBA is FVBWA: no block has rows of all four.
    statistics, frame = kept("reference", without=("FED", "FVBA"))
    best, complete = Counter(), 0
    for _, block in frame.groupby(["dataset", "partition", "clients"]):
        # A row for each seed; only seeds that every row of the comparison has count.
        seeds = block.pivot_table(index="seed", columns=["model", "aggregator"], values="ece").dropna()
        if seeds.shape[1] == len(statistics.rows) and len(seeds):
            complete += 1
            best[" ".join(seeds.mean().idxmin())] += 1
    (leader, count), *_ = best.most_common()
    blocks = "1 block" if complete == 1 else f"{complete} blocks"
    assert f"ECE (%): of {blocks} with all rows, best mean of {leader} in {count}" in summary(statistics)


def test_published_means_have_leaders_and_no_claims():
    published = published_numbers.published("accuracy", "ece", "nll")
    keys = ["dataset", "partition", "clients", "model", "aggregator"]
    wide = published.pivot_table(index=keys, columns="metric", values="mean", sort=False).reset_index()
    blocks = list(dict.fromkeys(zip(wide["dataset"], wide["partition"], wide["clients"], strict=True)))
    rows = list(dict.fromkeys(zip(wide["model"], wide["aggregator"], strict=True)))
    wide = wide.assign(seed=0, diverged=False)
    statistics = analyse(wide, rows, blocks, [0], StatisticsSettings(), METRICS)
    text = summary(statistics)
    assert "Nothing is claimed" in text and "12 rows need 31 blocks that have them all, there are 12." in text
    best = Counter()
    for _, block in wide.groupby(keys[:3]):
        top = block[block["accuracy"] == block["accuracy"].max()]
        best.update(zip(top["model"], top["aggregator"], strict=True))
    leader, count = best.most_common(1)[0]
    assert f"Accuracy (%): of 12 blocks with all rows, best mean of {leader[0]} {leader[1]} in {count}" in text


def texts_of(path):
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("case", ["ten blocks", "two blocks", "nothing"])
def test_figures(case, tmp_path):
    blocks = [(f"data{index}", "iid", "10") for index in range(10)] if case == "ten blocks" else BLOCKS
    frame = frame_of([0, 3, -3], blocks=blocks)
    statistics = analysed(frame[:0] if case == "nothing" else frame, blocks=blocks)
    for name, drawn in (("d", differences.draw(statistics)), ("r", rank_diagram.draw(statistics))):
        drawn.draw_without_rendering()
        frame_box, boxes = drawn.bbox.padded(1), []
        for text in visible_texts(drawn):
            box = text.get_window_extent()
            assert text.get_fontsize() >= 7
            assert frame_box.x0 <= box.x0 and box.x1 <= frame_box.x1, text.get_text()
            assert frame_box.y0 <= box.y0 and box.y1 <= frame_box.y1, text.get_text()
            boxes.append(box.padded(-1))
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
        style.save(drawn, tmp_path / name)
    shown = texts_of(tmp_path / "d.svg")
    assert {"FVBWA EAA", "Accuracy (%)", "more is better", "less is better"} <= set(shown)
    assert ("no pair has run" in shown) == (case == "nothing")
    ranks = " ".join(texts_of(tmp_path / "r.svg"))
    assert ("1.00" in ranks and "critical difference" in ranks) == (case == "ten blocks")
    assert ("3 rows need 10 blocks" in ranks) == (case == "two blocks")


def test_command(tmp_path, capsys):
    plan = fabricated_run.plan(tmp_path, aggregators=["EAA", "GAA"], partitions=["iid", "noniid"])
    fabricated_run.make(plan, lambda cell: cell.aggregator != "GAA" or cell.seed < 2)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    command.run(parser.parse_args(["--settings", plan.settings.canonical(), "--partial", "--show"]))
    shown = capsys.readouterr().out
    assert "6 rows in 2 blocks of 3 seeds: differences to FEDAVG" in " ".join(shown.split())
    assert "2 of 6 runs of FVBA GAA, missing" in " ".join(shown.split()) and shown.count("Nothing is claimed") <= 1
    written = {str(path.relative_to(plan.results)) for path in plan.results.rglob("*_partial/*")}
    assert written == {
        *(f"tables_partial/{name}.{kind}" for name in ("statistics", "statistics_blocks") for kind in FORMATS),
        *(f"figures_partial/{name}.{kind}" for name in ("differences", "ranks") for kind in ("pdf", "svg")),
    }
