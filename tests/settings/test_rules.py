"""How a rule's file is read; and its mistakes, each told in one line that names the file and, if any, the line."""

import os
from dataclasses import fields

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from bflp import aggregators
from bflp.aggregators import AggregationSettings, Gaussian
from bflp.errors import ConfigError
from bflp.settings.rules import load_rule

HEAD = "def aggregate(means, log_variances, weights, settings, generator"
BODY = "    return means[0], log_variances[0]\n"
PLAIN = f"{HEAD}):\n{BODY}"
DATACLASS = (
    "from dataclasses import dataclass\nfrom bflp.aggregators import AggregationSettings\n"
    "@dataclass(frozen=True, kw_only=True)\n"
)
FUTURE = "from __future__ import annotations\n"


def written(folder, source, name="mine.py"):
    path = folder / name
    path.write_text(source, encoding="utf-8")
    return path


def test_names_are_those_of_the_files_in_alphabetical_order():
    found = aggregators.names()
    assert found == sorted(found)
    assert {"AALV", "CF", "EAA", "FKL", "GAA", "PPA", "PRODUCT", "RKL", "W2"} <= set(found)
    assert not {"__INIT__", "_FLOORED_SUM", "NONE"} & set(found)


@pytest.mark.parametrize(
    ("rule", "reads", "own", "asks"),
    [
        ("EAA", ("arithmetic",), [], ()),
        ("GAA", ("arithmetic",), [], ()),
        ("AALV", (), [], ()),
        ("PPA", ("arithmetic",), ["population"], ()),
        ("CF", (), [], ()),
        ("W2", (), [], ()),
        ("RKL", (), [], ()),
        ("FKL", (), [], ()),
        ("PRODUCT", (), [], ("prior",)),
    ],
)
def test_the_built_in_rules(rule, reads, own, asks):
    loaded = load_rule(rule)
    shared = [field.name for field in fields(AggregationSettings)]
    assert (loaded.reads, loaded.asks) == (reads, asks)
    assert [field.name for field in fields(loaded.settings) if field.name not in shared] == own


def test_what_a_rule_reads_changes_its_result_and_nothing_else_does():
    """READS, tried: a rule that reads `arithmetic` gives something else with the other one, the rest does not."""
    means, log_variances = np.zeros((3, 4)), np.full((3, 4), -8.0)
    prior = Gaussian(np.zeros(4), np.zeros(4))
    for name in aggregators.names():
        rule = load_rule(name)
        results = [
            rule(
                means,
                log_variances,
                np.full(3, 1 / 3),
                rule.settings(arithmetic=arithmetic),
                np.random.default_rng(0),
                prior=prior,
            )
            for arithmetic in ("exact", "reference")
        ]
        assert (not np.array_equal(*results)) == ("arithmetic" in rule.reads), name


def test_a_file_that_says_nothing_reads_everything(tmp_path):
    rule = load_rule("MINE", written(tmp_path, PLAIN))
    assert rule.reads == ("arithmetic",)
    assert rule.settings is AggregationSettings
    assert rule.asks == ()


def test_settings_of_its_own(tmp_path):
    """Constraints and descriptions can be read from the class, also in a file with postponed annotations."""
    source = (
        f"{FUTURE}from typing import Annotated\nfrom annotated_types import Ge, Lt\n{DATACLASS}"
        "class Settings(AggregationSettings):\n    trim: Annotated[float, Ge(0), Lt(0.5)] = 0.1\n\n"
        f"READS = ()\n{HEAD}):\n    return settings.trim * means[0], log_variances[0]\n"
    )
    rule = load_rule("MINE", written(tmp_path, source))
    settings = TypeAdapter(rule.settings)
    assert settings.validate_python({"trim": 0.25}) == rule.settings(trim=0.25)
    with pytest.raises(ValidationError, match=r"less than 0\.5"):
        settings.validate_python({"trim": 0.5})
    ones = np.ones((2, 3))
    mean, _ = rule(ones, ones, np.ones(2) / 2, rule.settings(trim=0.25), np.random.default_rng(0))
    np.testing.assert_array_equal(mean, 0.25)


@pytest.mark.parametrize("population", [1, 2**31, 2.5])
def test_a_population_that_ppa_cannot_have(population):
    with pytest.raises(ValidationError, match="population"):
        TypeAdapter(load_rule("PPA").settings).validate_python({"population": population})


@pytest.mark.parametrize(
    ("parameters", "passed"),
    [
        ("", ()),
        (", previous", ("previous",)),
        (", prior", ("prior",)),
        (", previous, prior", ("previous", "prior")),
        (", prior, previous", ("previous", "prior")),
        (", *, prior", ("prior",)),
        (", prior=None, scale=2", ("prior",)),
        (", *rest, **names", ()),
    ],
)
def test_it_is_passed_what_it_asks_for(tmp_path, parameters, passed):
    rule = load_rule("MINE", written(tmp_path, f"{HEAD}{parameters}):\n    return locals()\n"))
    assert rule.asks == passed
    given = rule(1, 2, 3, 4, 5, "the previous", "the prior")
    assert [given[name] for name in ("means", "log_variances", "weights", "settings", "generator")] == [1, 2, 3, 4, 5]
    assert {name: given.get(name) for name in passed} == {name: f"the {name}" for name in passed}
    assert "the prior" not in given.values() or "prior" in passed
    assert not given.get("rest") and not given.get("names")


@pytest.mark.parametrize(
    "source",
    [
        "def aggregate(*all): ...\n",
        "def aggregate(a, b, c, d, e): ...\n",
        "def aggregate(a, b, c, d, e, f=1): ...\n",
        "def aggregate(a, b, c, d, e, *, f=1): ...\n",
        "def aggregate(a, b, c, d, e, /): ...\n",
        "from bflp.aggregators.cf import aggregate\n",
        "from bflp.aggregators.cf import aggregate as conflation\naggregate = conflation\n",
        "from bflp.aggregators.ppa import *\n",
        "if True:\n    def aggregate(a, b, c, d, e): ...\nelse:\n    aggregate = None\n",
        "import functools\naggregate: object = functools.partial(print)\n",
        "import functools\ndef f(x, a, b, c, d, e): ...\naggregate = functools.partial(f, 1)\n",
        "class Rule:\n    def __call__(self, a, b, c, d, e): ...\naggregate = Rule()\n",
        "import operator\naggregate = operator.itemgetter(1)\n",
        "# -*- coding: latin-1 -*-\n" + PLAIN,
        "READS = []\n" + PLAIN,
    ],
)
def test_other_ways_to_write_it(tmp_path, source):
    load_rule("MINE", written(tmp_path, source))


def test_what_it_imports_brings_its_settings(tmp_path):
    rule = load_rule("MINE", written(tmp_path, "from bflp.aggregators.ppa import READS, Settings, aggregate\n"))
    assert rule.settings(population=7).population == 7


def test_the_ending_of_the_name_is_free(tmp_path):
    mean, _ = load_rule("MINE", written(tmp_path, PLAIN, "rule.txt"))([1], [2], None, None, None)
    assert mean == 1


def test_an_edit_within_a_second_counts(tmp_path):
    """Nothing is remembered of an earlier text, even if length and time of the file are the same."""
    path = written(tmp_path, PLAIN)
    os.utime(path, (0, 0))
    assert load_rule("MINE", path)([1], [2], None, None, None) == (1, 2)
    written(tmp_path, PLAIN.replace("means[0], log_variances[0]", "log_variances[0], means[0]"))
    os.utime(path, (0, 0))
    assert load_rule("MINE", path)([1], [2], None, None, None) == (2, 1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.py"]


FIVE = r"`aggregate` must take 5 arguments, means, log_variances, weights, settings, generator, and beside them at most"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def aggregate(:\n", r"mine\.py, line 1: SyntaxError: invalid syntax"),
        ("x = 1\n\n  y = 2\n", r"mine\.py, line 3: IndentationError: unexpected indent"),
        ("This is prose.\n", r"mine\.py, line 1: SyntaxError: invalid syntax"),
        ("# \0\n", r"mine\.py.*null bytes"),
        ("import nowhere\n" + PLAIN, r"mine\.py, line 1: ModuleNotFoundError: No module named 'nowhere'"),
        ("x = 1\n1 / 0\n", r"mine\.py, line 2: ZeroDivisionError"),
        ("def f():\n    raise KeyError('first\\nsecond')\nf()\n", r"mine\.py, line 2: KeyError: "),
        ("def combine(): ...\n", r"mine\.py must define a function `aggregate\(means, log_variances, "),
        ("class A:\n    def aggregate(): ...\n", r"mine\.py must define a function `aggregate"),
        ("\naggregate = 1\n", r"mine\.py, line 2 must define a function `aggregate"),
        ("\ndef aggregate(means, weights): ...\n", rf"mine\.py, line 2: {FIVE}.*takes \(means, weights\)$"),
        ("def aggregate(a, b, c, d, e, f): ...\n", FIVE),
        ("def aggregate(a, b, c, d, e, *, f): ...\n", FIVE),
        ("def aggregate(a, b, c, d, e, priors): ...\n", FIVE),
        ("def aggregate(a, b, c, d, prior): ...\n", FIVE),
        ("def aggregate(a, b, c, d, e, prior, /): ...\n", FIVE),
        ("import functools\naggregate = functools.partial(lambda a: 1)\n", rf"mine\.py, line 2: {FIVE}"),
        (f"READS = ('arithmetics',)\n{PLAIN}", r"mine\.py, line 1: READS must be .*not \('arithmetics',\)"),
        (f"\nREADS = 'arithmetic'\n{PLAIN}", r"mine\.py, line 2: READS must be \(\) or \('arithmetic',\)"),
        (f"READS = None\n{PLAIN}", r"mine\.py, line 1: READS must be"),
        (f"READS = ([],)\n{PLAIN}", r"mine\.py, line 1: READS must be"),
        (
            f"class Settings:\n    trim = 1\n{PLAIN}",
            r"mine\.py, line 1: write `@dataclass\(frozen=True, kw_only=True\)",
        ),
        (f"{DATACLASS}class Settings:\n    trim: int = 1\n{PLAIN}", r"mine\.py, line 4: write `@dataclass"),
        (
            "from bflp.aggregators import AggregationSettings\nclass Settings(AggregationSettings):\n"
            f"    trim: int = 1\n{PLAIN}",
            r"mine\.py, line 2: write `@dataclass",
        ),
        (f"Settings = AggregationSettings = 3\n{PLAIN}", r"mine\.py, line 1: write `@dataclass"),
        (
            f"{DATACLASS.replace('frozen=True, ', '')}class Settings(AggregationSettings):\n    trim: int = 1\n{PLAIN}",
            r"mine\.py, line 3: TypeError: cannot inherit non-frozen",
        ),
        (
            f"{DATACLASS}class Settings(AggregationSettings):\n    file: str = ''\n{PLAIN}",
            r"mine\.py, line 4: no setting may be called `file`",
        ),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path, source, error):
    with pytest.raises(ConfigError, match=error) as caught:
        load_rule("MINE", written(tmp_path, source))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "mine.py"))


def test_a_mistake_in_what_the_file_imports_names_both(tmp_path, monkeypatch):
    written(tmp_path, "x = 1\nhelp!\n", "its_helper.py")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"mine\.py, line 1: SyntaxError: .*its_helper\.py, line 2"):
        load_rule("MINE", written(tmp_path, f"import its_helper\n{PLAIN}"))


def test_text_that_cannot_be_read(tmp_path):
    path = tmp_path / "mine.py"
    path.write_bytes(b"x = '\xff'\n")
    with pytest.raises(ConfigError, match=r"mine\.py.*SyntaxError"):
        load_rule("MINE", path)
    path.write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match=r"mine\.py"):
        load_rule("MINE", path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"^there is no file .*gone\.py$"):
        load_rule("MINE", tmp_path / "gone.py")
    with pytest.raises(ConfigError, match=r"^there is no file .*"):
        load_rule("MINE", tmp_path)
    with pytest.raises(ConfigError, match=r"^there is no file .*bflp/aggregators/nobodys\.py$"):
        load_rule("NOBODYS")
