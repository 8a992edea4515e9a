"""Two samples of runs: scipy's tests of the same numbers, and published tables of how many runs a test needs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bflp.paper.two_samples import Sample, difference, runs_needed


def sample(values: list[float]) -> Sample:
    return Sample(float(np.mean(values)), float(np.std(values, ddof=1)), len(values))


FIRST, SECOND = [89.70, 90.06, 90.17, 89.99, 89.42], [90.1, 90.0, 90.3, 89.9]


def test_difference_is_welchs() -> None:
    found, test = difference(sample(FIRST), sample(SECOND)), stats.ttest_ind(FIRST, SECOND, equal_var=False)
    low, high = test.confidence_interval()
    assert found.p == pytest.approx(test.pvalue)
    assert (found.value - found.half_interval, found.value + found.half_interval) == pytest.approx((low, high))


def test_interval_of_a_mean() -> None:
    low, high = stats.ttest_1samp(FIRST, 0).confidence_interval()
    assert sample(FIRST).half_interval == pytest.approx((high - low) / 2)


# Cohen (1988), table 2.4.1: a two-sided test at 5% with a power of 80%.
@pytest.mark.parametrize(("true", "runs"), [(0.2, 394), (0.5, 64), (0.8, 26), (0.05, None)])
def test_runs_needed(true: float, runs: int | None) -> None:
    assert runs_needed(true, 1.0) == runs_needed(-true * 3, 3.0) == runs


def test_a_detectable_difference_is_detected_as_often_as_said() -> None:
    """By simulation: many differences of that size, each tested."""
    generator, true = np.random.default_rng(0), difference(Sample(0, 1, 6), Sample(0, 1, 10)).detectable
    draws = generator.standard_normal((20_000, 16))
    p = stats.ttest_ind(draws[:, :6] + true, draws[:, 6:], axis=1, equal_var=False).pvalue
    assert float((p < 0.05).mean()) == pytest.approx(0.8, abs=0.03)
