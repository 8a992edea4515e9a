"""What every rule has, and what the profile that a plain `snakemake` picks up leaves to the machine."""

from __future__ import annotations

import re

import pytest
import yaml
from small_project import ROOT

TEXT = (ROOT / "Snakefile").read_text(encoding="utf-8")
RULES = {found[1]: found[2] for found in re.finditer(r"^rule (\w+):\n((?:(?:    .*)?\n)+)", TEXT, flags=re.MULTILINE)}
WORKING = sorted(name for name, body in RULES.items() if "\n    shell:" in body)


def test_all_rules_are_looked_at() -> None:
    assert len(RULES) == len(re.findall(r"^rule ", TEXT, flags=re.MULTILINE)) > 8
    assert {"prepare", "partition", "train", "merge", "tables"} <= set(WORKING)


@pytest.mark.parametrize("name", WORKING)
def test_a_rule_that_works_has_a_log_a_benchmark_and_an_environment(name: str) -> None:
    for directive in ("log", "benchmark", "conda"):
        assert f"\n    {directive}:\n" in RULES[name], directive
    # All that a program prints is in the log: clusters throw away what jobs that end well print.
    assert re.search(r"> \{log:q\} 2>&1\"\n*$", RULES[name])


def test_every_wildcard_has_a_constraint() -> None:
    constrained = set(re.findall(r"^    (\w+)=", TEXT.partition("wildcard_constraints:")[2].partition("\n\n")[0], re.M))
    used = set(re.findall(r"wildcards\.(\w+)", TEXT)) | set(re.findall(r"\{\{(\w+)\}\}", TEXT))
    # These are filled in by expand().
    assert used - constrained <= {"name", "kind"}
    assert constrained


def test_the_default_profile_is_right_on_every_machine() -> None:
    profile = yaml.safe_load((ROOT / "profiles/default/config.yaml").read_text(encoding="utf-8"))
    assert not set(profile) & {"cores", "jobs", "executor", "resources", "default-resources", "set-resources"}
    assert not set(profile) & {"configfile", "directory", "snakefile", "quiet", "cluster"}
