"""A rule's mistakes in use: each is told in one line that names its file, before the training where possible."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bflp import aggregators
from bflp.aggregators import Gaussian
from bflp.runtime.errors import HopelessError
from bflp.runtime.rule import CheckedRule

HEAD = "def aggregate(means, log_variances, weights, settings, generator):\n"


def rule_of(name: str, file: Path | None, arithmetic: str = "exact") -> CheckedRule:
    settings: Any = SimpleNamespace(aggregator=name, aggregation=arithmetic, rule={}, posterior=None)
    return CheckedRule(settings, file)


def rule_file(folder: Path, source: str) -> Path:
    path = folder / "mine.py"
    path.write_text(source, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", aggregators.names())
@pytest.mark.parametrize("arithmetic", ["exact", "reference"])
def test_the_built_in_rules_pass(name: str, arithmetic: str) -> None:
    rule = rule_of(name, None, arithmetic)
    for clients in (1, 2, 100):
        for by_data in (True, False):
            rule.try_out(clients, by_data)


def test_a_rule_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(
        HopelessError, match=r"^the aggregator MINE cannot be loaded: .*mine\.py, line 2: ZeroDivisionError: [a-z ]+$"
    ):
        rule_of("MINE", rule_file(tmp_path, "x = 1\n1 / 0\n"))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("return means, log_variances", r"mine\.py: TypeError: it must return two arrays of shape \(7,\), not 2 of"),
        ("return means[0]", r"mine\.py: TypeError: .*not a ndarray"),
        ("return means[0], log_variances[0], 1", r"not 3 of shapes \(7,\), \(7,\), \(\)"),
        ("return None", "not a NoneType"),
        ("return means[0], 'wide'", r"not 2 of shapes \(7,\), \(\)"),
        ("return means[0], ['wide'] * 7", r"mine\.py: ValueError: could not convert"),
        ("half = weights[:-1]\n    return half @ means, log_variances[0]", r"mine\.py, line 3: ValueError: matmul"),
        ("raise KeyError('first\\nsecond')", r"mine\.py, line 2: KeyError: "),
        ("import nowhere", r"mine\.py, line 2: ModuleNotFoundError"),
        ("return means[0], log_variances[0] * float('nan')", r"mine\.py\) makes entries that are not finite"),
        ("return means[0] * float('inf'), log_variances[0]", "not finite"),
        ("return means[0], means[1]", r"tried out with 1 client: .*mine\.py, line 2: IndexError"),
        ("assert len(means) < 3\n    return means[0], means[0]", r"tried out with 3 clients: .*line 2: AssertionError"),
    ],
)
def test_what_a_trial_tells(tmp_path: Path, body: str, error: str) -> None:
    rule = rule_of("MINE", rule_file(tmp_path, f"{HEAD}    {body}\n"))
    with pytest.raises(HopelessError, match=error) as caught:
        rule.try_out(3, False)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("the aggregator MINE ")


def test_a_trial_passes_the_previous_posterior_and_the_prior(tmp_path: Path) -> None:
    head = HEAD.replace("generator", "generator, previous, prior")
    rule = rule_of(
        "MINE", rule_file(tmp_path, f"{head}    return previous.mean + prior.mean, previous.log_variance[:3]\n")
    )
    with pytest.raises(HopelessError, match=r"not 2 of shapes \(7,\), \(3,\)"):
        rule.try_out(2, False)


def test_a_trial_is_under_the_cells_prior() -> None:
    posterior = SimpleNamespace(bounds=(-8.0, 8.0), prior_mean=0.0, prior_standard_deviation=0.01)
    settings: Any = SimpleNamespace(aggregator="PRODUCT", aggregation="exact", rule={}, posterior=posterior)
    with pytest.raises(HopelessError, match="the prior is narrower"):
        CheckedRule(settings, None).try_out(3, False)


def test_a_rule_gets_the_previous_posterior_and_the_prior(tmp_path: Path) -> None:
    head = HEAD.replace("generator", "generator, previous, prior")
    body = "    return previous.mean - prior.mean, previous.log_variance - prior.log_variance\n"
    rule = rule_of("MINE", rule_file(tmp_path, head + body))
    values, previous, prior = np.zeros((3, 2)), np.array([1.0, 2.0]), np.array([0.25, 0.5])
    mean, log_variance = rule(
        values,
        values,
        np.ones(3) / 3,
        np.random.default_rng(0),
        Gaussian(previous, -previous),
        Gaussian(prior, prior),
        "in round 1",
    )
    assert mean.tolist() == [0.75, 1.5]
    assert log_variance.tolist() == [-1.25, -2.5]


def test_a_rule_that_fails_later_says_in_which_round(tmp_path: Path) -> None:
    rule = rule_of("MINE", rule_file(tmp_path, f"{HEAD}    assert means.shape[1] < 8\n    return means[0], means[0]\n"))
    rule.try_out(3, False)
    values, any_ = np.zeros((3, 8)), Gaussian(np.zeros(8), np.zeros(8))
    with pytest.raises(HopelessError, match=r"failed in round 4: .*mine\.py, line 2: AssertionError"):
        rule(values, values, np.ones(3) / 3, np.random.default_rng(0), any_, any_, "in round 4")
