"""A sample of each kind of fault: nothing is lost. `python tests/faults/inject.py` tries far more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("inject.py")
# Two at once, of about the same length.
HALVES = (
    ("kills", "kills_at_changes", "signals", "failing_changes", "full_disk", "no_permission"),
    (
        "signals_at_changes",
        "preparation_at_changes",
        "damaged_inputs",
        "damaged_results",
        "worker_kills",
        "program_kills",
    ),
)


@pytest.fixture(scope="module")
def tallies(tmp_path_factory):
    """What the fault-injection program found, by kind."""
    folder = tmp_path_factory.mktemp("faults")
    length = [] if os.environ.get("BFLP_LONG") else ["--short"]
    running = []
    for number, half in enumerate(HALVES):
        command = [sys.executable, PROGRAM, *length, "--json", folder / f"{number}.json", "--only", *half]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    found = {}
    for number, process in enumerate(running):
        text, _ = process.communicate()
        file = folder / f"{number}.json"
        assert file.exists(), text
        found |= json.loads(file.read_text())
    return found


@pytest.mark.parametrize("kind", [kind for half in HALVES for kind in half])
def test_nothing_is_lost(tallies, kind):
    tally = tallies[kind]
    if tally["skipped"]:
        pytest.skip(tally["skipped"])
    assert tally["lost"] == []
    assert tally["tried"] > 0
