"""Means and errors over seeds, and the rules for bold entries against every published entry and in single cases."""

import math

import pandas as pd
import pytest
from published_numbers import COLUMNS, RESULTS, published

from bflp.reporting.summary import Summary, bold_best, bold_lowest
from bflp.reporting.table import Entry

NAN = math.nan


KEY = ("fmnist", "0.1", "10", "FED", "none")


def summary(*accuracies: float | None, diverged: frozenset[int] = frozenset()) -> Summary:
    rows = [
        dict(zip(COLUMNS, (*KEY, seed, seed in diverged, value), strict=False)) for seed, value in enumerate(accuracies)
    ]
    return Summary(pd.DataFrame(rows, columns=COLUMNS), seeds=4)


def test_mean_and_standard_error() -> None:
    # Deviations -3, 0, 3: sample variance 9, over the root of three seeds.
    entry = summary(1.0, 4.0, 7.0).entry(KEY, "accuracy")
    assert (entry.mean, entry.seeds, entry.wanted) == (4.0, 3, 4)
    assert entry.standard_error == pytest.approx(3 / math.sqrt(3))
    one = summary(2.5).entry(KEY, "accuracy")
    assert one.mean == 2.5 and math.isnan(one.standard_error)


def test_missing_and_diverged_have_no_mean() -> None:
    assert summary(1.0).entry((*KEY[:3], "FED", "EAA"), "accuracy") == Entry(wanted=4)
    assert summary().entry(KEY, "accuracy") == Entry(wanted=4)
    assert summary(1.0, None, 2.0, diverged=frozenset([1])).entry(KEY, "accuracy") == Entry(wanted=4, diverged=1)
    # A number that a method does not have.
    assert summary(1.0, 2.0).entry(KEY, "ood_auroc").seeds == 0


def test_every_bold_flag_of_the_published_result_tables():
    table = published(*RESULTS)
    checked = 0
    for block, rows in table.groupby(["dataset", "partition", "clients", "metric"]):
        flags = bold_best(list(rows["mean"]), list(rows["error"]), block[-1] == "accuracy")
        assert flags == (rows["bold"] == 1).tolist(), block
        assert len(rows) == 12
        checked += len(rows)
    assert checked == 432


def test_every_bold_flag_of_the_published_spread_table():
    table = published("spread")
    checked = 0
    for block, rows in table.groupby(["dataset", "clients"]):
        flags = bold_lowest(list(rows["mean"]), list(rows["error"]))
        assert flags == (rows["bold"] == 1).tolist(), block
        checked += len(rows)
    assert checked == 30


@pytest.mark.parametrize(
    ("means", "errors", "higher", "bold"),
    [
        # Within 0.3 of 90, the boundary counts although 90 - 89.7 is more than 0.3 in floats.
        ([90, 89.7, 89.6], [0.3, 9, 9], True, [True, True, False]),
        ([1.0, 1.3, 1.4], [0.3, 9, 9], False, [True, True, False]),
        # Another row's large standard error makes nothing bold.
        ([90, 89], [0.1, 5], True, [True, False]),
        # Of tied best rows the smallest standard error counts, wherever it stands.
        ([90, 90, 89.8], [0.5, 0.1, 0], True, [True, True, False]),
        ([90, 90, 89.8], [0.1, 0.5, 0], True, [True, True, False]),
        ([2, 2, 2.2], [0.5, 0.1, 0], False, [True, True, False]),
        # Missing rows are not bold and not best.
        ([NAN, 90, 89.95, NAN], [NAN, 0.1, 0, 0.3], True, [False, True, True, False]),
        ([NAN, NAN], [NAN, NAN], True, [False, False]),
        ([], [], True, []),
        # One seed has no standard error: ties of the best mean alone.
        ([90, 89.99, 90], [NAN, NAN, NAN], True, [True, False, True]),
        ([90, 89.99, 90], [NAN, 0.5, 0.5], True, [True, False, True]),
        # Of what is neither better high nor low nothing is best.
        ([1.5, 0.9], [0.1, 0.1], None, [False, False]),
    ],
)
def test_bold_best(means, errors, higher, bold):
    assert bold_best(means, errors, higher) == bold


@pytest.mark.parametrize(
    ("means", "bold"),
    [
        ([5, 1, 4, 2, 3], [False, True, False, True, True]),
        ([5, NAN, 4, NAN, 3], [True, False, True, False, True]),
        ([2, NAN], [True, False]),
        # Of equal means the first ones, never more than three.
        ([1, 1, 1, 1], [True, True, True, False]),
        ([NAN, NAN], [False, False]),
    ],
)
def test_bold_lowest(means, bold):
    assert bold_lowest(means) == bold
    assert bold_lowest(means, [NAN] * len(means)) == bold
