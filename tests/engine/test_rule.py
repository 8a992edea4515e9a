"""A rule's mistakes: each is told in one line that names its file, as early as can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bflp import aggregators
from bflp.aggregators import AggregationSettings
from bflp.cli import rule_source
from bflp.engine.rule import CheckedRule
from bflp.errors import ConfigError, UserError

HEAD = "def aggregate(means, log_variances, weights, settings, generator):\n"
SETTINGS = AggregationSettings()


def rule_file(folder: Path, source: str) -> Path:
    path = folder / "mine.py"
    path.write_text(source, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def aggregate(:\n", r"mine\.py, line 1: invalid syntax"),
        ("x = 1\n\n  y = 2\n", r"mine\.py, line 3: unexpected indent"),
        ("def combine(): ...\n", r"mine\.py must define a function `aggregate\(means, log_variances, "),
        ("class A:\n    def aggregate(): ...\n", r"mine\.py must define a function `aggregate"),
        ("\ndef aggregate(means, weights): ...\n", r"mine\.py, line 2: `aggregate` must take 5 arguments: means"),
        ("def aggregate(a, b, c, d, e, f): ...\n", "must take 5 arguments"),
        ("def aggregate(a, b, c, d, e, *, f): ...\n", "must take 5 arguments"),
        ("# \0\n", r"mine\.py.*null bytes"),
    ],
)
def test_what_the_source_tells(tmp_path: Path, source: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error) as caught:
        rule_source.check(rule_file(tmp_path, source))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        f"{HEAD}    return means[0], log_variances[0]\n",
        "def aggregate(*all): ...\n",
        "def aggregate(a, b, c, d, e, f=1): ...\n",
        "def aggregate(a, b, c, d, e, *, f=1): ...\n",
        "from bflp.aggregators.cf import aggregate\n",
        "from bflp.aggregators.cf import aggregate as conflation\naggregate = conflation\n",
        "from bflp.aggregators.cf import *\n",
        "if True:\n    def aggregate(a, b, c, d, e): ...\nelse:\n    aggregate = None\n",
        "import functools\naggregate: object = functools.partial(print)\n",
    ],
)
def test_other_ways_to_define_it(tmp_path: Path, source: str) -> None:
    rule_source.check(rule_file(tmp_path, source))


def test_the_built_in_rules_pass() -> None:
    for name in aggregators.built_in():
        rule_source.check(Path(aggregators.__file__).with_name(f"{name.lower()}.py"))
        for clients in (1, 2, 100):
            CheckedRule(name, None).try_out(clients, True, SETTINGS)
            CheckedRule(name, None).try_out(clients, False, SETTINGS)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import nowhere\n" + HEAD, r"mine\.py, line 1: ModuleNotFoundError: No module named 'nowhere'"),
        ("x = 1\n1 / 0\n", r"mine\.py, line 2: ZeroDivisionError"),
        ("def aggregate(:\n", r"mine\.py, line 1: SyntaxError: invalid syntax"),
        ("x = 1\n", r"must define a function `aggregate`"),
        ("aggregate = 1\n", r"must define a function `aggregate`"),
    ],
)
def test_what_can_not_be_loaded(tmp_path: Path, source: str, error: str) -> None:
    if source.endswith(HEAD):
        source += "    return means[0], log_variances[0]\n"
    with pytest.raises(UserError, match=f"the aggregator MINE can not be loaded: .*{error}") as caught:
        CheckedRule("MINE", rule_file(tmp_path, source))
    assert "\n" not in str(caught.value)


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
    ],
)
def test_what_a_trial_tells(tmp_path: Path, body: str, error: str) -> None:
    rule = CheckedRule("MINE", rule_file(tmp_path, f"{HEAD}    {body}\n"))
    with pytest.raises(UserError, match=error) as caught:
        rule.try_out(3, False, SETTINGS)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("the aggregator MINE ")


def test_a_rule_that_fails_later_says_in_which_round(tmp_path: Path) -> None:
    rule = CheckedRule(
        "MINE", rule_file(tmp_path, f"{HEAD}    assert means.shape[1] < 8\n    return means[0], means[0]\n")
    )
    rule.try_out(3, False, SETTINGS)
    values = np.zeros((3, 8))
    with pytest.raises(UserError, match=r"failed in round 4: .*mine\.py, line 2: AssertionError"):
        rule("in round 4", values, values, np.ones(3) / 3, SETTINGS, np.random.default_rng(0))
