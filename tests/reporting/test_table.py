"""What is shown of a number: enough digits, no minus zero, and marks for what is missing."""

import math

import pytest

from bflp.reporting.table import Entry, shown

NAN = math.nan


def show(value: Entry | str) -> str:
    return shown(value, str.upper, "<{}>", "+-{}", "({})")


@pytest.mark.parametrize(
    ("mean", "error", "digits", "text"),
    [
        (90.104, 0.113, 2, "90.10+-0.11"),
        # The error decides: one significant digit at least.
        (0.25132, 0.0031, 2, "0.251+-0.003"),
        (0.0031, 0.00042, 2, "0.0031+-0.0004"),
        (90.1, 0.000312, 2, "90.1000+-0.0003"),
        # So does the mean.
        (0.0031, 0.0, 2, "0.003+-0.000"),
        (-0.0031, NAN, 2, "-0.003"),
        (0.004, 0.9, 2, "0.004+-0.900"),
        # What four decimals show as zero is zero, without a minus.
        (-1e-8, 1e-9, 2, "0.00+-0.00"),
        (0.64, 1e-17, 2, "0.64+-0.00"),
        (0.00004, 0.2, 2, "0.00+-0.20"),
        # The edge: 0.005 as a float is a little more, 0.00499 is less.
        (5.0, 0.005, 2, "5.00+-0.01"),
        (5.0, 0.00499, 2, "5.000+-0.005"),
        # A metric's own digits.
        (85.52, 0.41, 0, "85.5+-0.4"),
        (85.52, 4.1, 0, "86+-4"),
        (0.123456, 0.1, 5, "0.12346+-0.10000"),
        (-0.0, 0.0, 1, "0.0+-0.0"),
    ],
)
def test_digits(mean: float, error: float, digits: int, text: str) -> None:
    assert show(Entry(mean, error, 5, 5, digits=digits)) == text


def test_marks() -> None:
    assert show(Entry(1.5, 0.25, 5, 5, bold=True)) == "<1.50>+-0.25"
    assert show(Entry(2.0, NAN, 1, 1)) == "2.00"
    assert show(Entry(2.0, 0.5, 2, 5)) == "2.00+-0.50(2/5)"
    assert show(Entry(2.0, 0.5, 2, 5, differs=True)) == "2.00+-0.50†(2/5)"
    assert show(Entry(wanted=5)) == "—"
    assert show(Entry(wanted=5, diverged=2)) == "DIVERGED (2/5)"
    assert show("words") == "WORDS"
    assert show("") == ""
