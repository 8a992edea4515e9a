"""A sample of each kind of fault: nothing is lost. `python tests/faults/inject.py` tries far more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from inject import KINDS

PROGRAM = Path(__file__).with_name("inject.py")


@pytest.fixture(scope="module")
def tallies(tmp_path_factory):
    """What the fault-injection program found, by kind. A program, since it forks: pytest has threads by then."""
    file = tmp_path_factory.mktemp("faults") / "tallies.json"
    length = [] if os.environ.get("BFLP_LONG") else ["--short"]
    done = subprocess.run(
        [sys.executable, PROGRAM, *length, "--json", file], capture_output=True, text=True, check=False
    )
    assert file.exists(), done.stdout + done.stderr
    return json.loads(file.read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost(tallies, kind):
    tally = tallies[kind]
    if tally["skipped"]:
        pytest.skip(tally["skipped"])
    assert tally["lost"] == []
    assert tally["tried"] > 0
