"""Kill, stop, starve and damage a small cell in many ways, and count what is lost.

    python tests/faults/inject.py                     everything, half an hour
    python tests/faults/inject.py --short             a sample of each kind, as `make test` does
    python tests/faults/inject.py --kills 500 --seed 1 --only kills signals

Nothing may be lost: a cell that is run again must give the very same result, an end must be clear and quick, and
damage must be noticed or harmless. Ends with exit code 1 where something was lost.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import damages
import disks
import interruptions
import programs
from laboratory import Laboratory, Tally
from small_cell import warm_up

# By name: (laboratory, kills, short) -> tally.
KINDS: dict[str, Callable[[Laboratory, int, bool], Tally]] = {
    "kills": lambda lab, kills, short: interruptions.kills(lab, 12 if short else kills),
    "kills_at_changes": lambda lab, _, short: interruptions.kills_at_changes(lab, short),
    "signals": lambda lab, _, short: interruptions.signals(lab, 4 if short else 100),
    "signals_at_changes": lambda lab, _, short: interruptions.signals_at_changes(lab, short),
    "failing_changes": lambda lab, _, short: interruptions.failing_changes(lab, short),
    "preparation_at_changes": lambda lab, _, short: interruptions.preparation_at_changes(lab, 4 if short else 1),
    "full_disk": lambda lab, _, short: disks.full_disk(lab, 8 if short else 200),
    "no_permission": lambda lab, _, short: disks.no_permission(lab),
    "damaged_inputs": lambda lab, _, short: damages.damaged_inputs(lab, 12 if short else 400),
    "damaged_results": lambda lab, _, short: damages.damaged_results(lab, 210 if short else 7000),
    "worker_kills": lambda lab, _, short: programs.worker_kills(lab, 1 if short else 20),
    "program_kills": lambda lab, _, short: programs.program_kills(lab, 3 if short else 60),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs at random moments (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and places")
    parser.add_argument("--short", action="store_true", help="a sample of each kind")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--json", type=Path, help="write the tallies to this file, too")
    arguments = parser.parse_args()
    warm_up()
    with tempfile.TemporaryDirectory(prefix="bflp-faults-") as folder:
        lab = Laboratory(Path(folder), arguments.seed)
        tallies = {}
        for name in arguments.only:
            start = time.monotonic()
            tallies[name] = KINDS[name](lab, arguments.kills, arguments.short)
            show(tallies[name], time.monotonic() - start)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({name: asdict(tally) for name, tally in tallies.items()}))
    tried, lost = (sum(numbers) for numbers in zip(*((t.tried, len(t.lost)) for t in tallies.values()), strict=True))
    print(f"{tried:6d} tried, {lost} lost")
    sys.exit(1 if lost else 0)


def show(tally: Tally, seconds: float) -> None:
    """One line of the summary, and what was lost."""
    if tally.skipped:
        print(f"skipped            {tally.name}: {tally.skipped}", flush=True)
        return
    notes = f" ({'; '.join(tally.notes)})" if tally.notes else ""
    print(f"{tally.tried:6d} tried, {len(tally.lost):3d} lost  {tally.name}{notes}, {seconds:.0f} s", flush=True)
    for lost in tally.lost[:10]:
        print(f"       lost: {lost}", flush=True)


if __name__ == "__main__":
    main()
