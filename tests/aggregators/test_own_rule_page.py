"""The rules that docs/own-rule.md shows, loaded as they stand there; tests/workflow follows the page's commands."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from bflp.aggregators import Gaussian
from bflp.settings.rules import load_rule

PAGE = (Path(__file__).resolve().parents[2] / "docs/own-rule.md").read_text(encoding="utf-8")
SHOWN = dict(re.findall(r"`bflp/aggregators/(\w+)\.py`[^`]*\n\n```python\n(.*?)```", PAGE, flags=re.DOTALL))

# Five clients, two weights; the variances of the first weight are 1, 2, 3, 4, 5, those of the second all below e^-8.
MEANS = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 6.0], [7.0, 0.0], [100.0, 4.0]])
LOG_VARIANCES = np.array([[math.log(k), -9.0] for k in range(1, 6)])
WEIGHTS = np.array([0.1, 0.1, 0.2, 0.2, 0.4])
# 0.1 + 0.2 + 0.6 + 0.8 + 2
MEAN_VARIANCE = [3.7, math.exp(-8)]


@pytest.fixture
def shown(tmp_path):
    def loaded(name):
        file = tmp_path / f"{name}.py"
        file.write_text(SHOWN[name], encoding="utf-8")
        return load_rule(name.upper(), file)

    return loaded


def test_all_of_them_are_looked_at():
    assert sorted(SHOWN) == ["damped", "median", "trimmed"]
    assert PAGE.count("```python") == 3


def test_median(shown):
    rule = shown("median")
    mean, log_variance = rule(MEANS, LOG_VARIANCES, WEIGHTS, rule.settings(), np.random.default_rng(0))
    assert mean.tolist() == [3, 0]
    np.testing.assert_allclose(np.exp(log_variance), MEAN_VARIANCE, rtol=1e-14)


@pytest.mark.parametrize(
    ("trim", "expected"),
    [
        # Of five clients a fifth is one: (2 + 3 + 7) / 3, (0 + 0 + 4) / 3; at a tenth none is left out.
        (0.2, [4, 4 / 3]),
        (0.1, [113 / 5, 2]),
        (0.4, [3, 0]),
    ],
)
def test_trimmed(shown, trim, expected):
    rule = shown("trimmed")
    settings = TypeAdapter(rule.settings).validate_python({"trim": trim})
    mean, log_variance = rule(MEANS, LOG_VARIANCES, WEIGHTS, settings, np.random.default_rng(0))
    np.testing.assert_allclose(mean, expected, rtol=1e-14)
    np.testing.assert_allclose(np.exp(log_variance), MEAN_VARIANCE, rtol=1e-14)


def test_what_trimmed_refuses(shown):
    with pytest.raises(ValidationError, match=r"trim"):
        TypeAdapter(shown("trimmed").settings).validate_python({"trim": 0.5})


def test_damped(shown):
    rule = shown("damped")
    assert rule.asks == ("previous",)
    previous = Gaussian(np.array([1.0, -1.0]), np.array([0.0, -7.0]))
    means, log_variances = np.array([[2.0, 2.0], [4.0, 0.0]]), np.array([[-1.0, -9.0], [-3.0, -9.0]])
    mean, log_variance = rule(
        means, log_variances, np.full(2, 0.5), rule.settings(), np.random.default_rng(0), previous=previous
    )
    assert mean.tolist() == [2, 0]
    assert log_variance.tolist() == [-1, -8]
