"""The paper's rules for bold entries, against every published entry and in single cases."""

import math
from pathlib import Path

import pandas as pd
import pytest

import bflp
from bflp.reporting.tables import bold_best, bold_lowest

PUBLISHED = Path(bflp.__file__).parent / "paper" / "published"
NAN = math.nan


def test_every_bold_flag_of_the_published_result_tables():
    table = pd.read_csv(PUBLISHED / "results.csv", keep_default_na=False)
    checked = 0
    for block, rows in table.groupby(["dataset", "partition", "clients", "metric"]):
        flags = bold_best(list(rows["mean"]), list(rows["standard_error"]), block[-1] == "accuracy")
        assert flags == (rows["bold"] == 1).tolist(), block
        assert len(rows) == 12
        checked += len(rows)
    assert checked == 432


def test_every_bold_flag_of_the_published_spread_table():
    table = pd.read_csv(PUBLISHED / "spread.csv", keep_default_na=False)
    checked = 0
    for block, rows in table.groupby(["dataset", "clients"]):
        flags = bold_lowest(list(rows["mean"]), list(rows["standard_error"]))
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


def test_bold_lowest_of_another_number():
    assert bold_lowest([3, 1, 2], count=1) == [False, True, False]
