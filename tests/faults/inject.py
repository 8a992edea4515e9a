"""Kill, stop, starve and damage a small cell in many ways, and count what is lost.

    python tests/faults/inject.py                    everything, some minutes
    python tests/faults/inject.py --short            a sample, within a minute or two
    python tests/faults/inject.py --kills 500 --seed 1

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

import faults
from small_cell import warm_up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs at random moments (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and places")
    parser.add_argument("--short", action="store_true", help="a sample of each kind")
    parser.add_argument("--only", help="kinds of faults whose name contains this")
    parser.add_argument("--json", type=Path, help="write the tallies to this file, too")
    arguments = parser.parse_args()
    warm_up()
    with tempfile.TemporaryDirectory(prefix="bflp-faults-") as folder:
        lab = faults.Laboratory(Path(folder), arguments.seed)
        tallies = []
        for name, run in kinds(lab, arguments.kills, arguments.short).items():
            if arguments.only in (None, "") or arguments.only in name:
                start = time.monotonic()
                tallies.append(run())
                show(tallies[-1], time.monotonic() - start)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(tally) for tally in tallies]))
    tried, lost = sum(tally.tried for tally in tallies), sum(len(tally.lost) for tally in tallies)
    print(f"{tried:6d} tried, {lost} lost")
    sys.exit(1 if lost else 0)


def kinds(lab: faults.Laboratory, kills: int, short: bool) -> dict[str, Callable[[], faults.Tally]]:
    """The kinds of faults by name, each with its number of tries."""
    return {
        "kills": lambda: faults.kills(lab, 15 if short else kills),
        "kills_at_changes": lambda: faults.kills_at_changes(lab, 12 if short else 1),
        "signals": lambda: faults.signals(lab, 6 if short else 100),
        "signals_at_changes": lambda: faults.signals_at_changes(lab, 15 if short else 1),
        "failing_changes": lambda: faults.failing_changes(lab, 15 if short else 1),
        "preparation_at_changes": lambda: faults.preparation_at_changes(lab),
        "full_disk": lambda: faults.full_disk(lab, 8 if short else 100),
        "no_permission": lambda: faults.no_permission(lab),
        "damaged_inputs": lambda: faults.damaged_inputs(lab, 12 if short else 400),
        "damaged_results": lambda: faults.damaged_results(lab, 210 if short else 7000),
        "worker_kills": lambda: faults.worker_kills(lab, 1 if short else 15),
        "program_kills": lambda: faults.program_kills(lab, 2 if short else 24),
    }


def show(tally: faults.Tally, seconds: float) -> None:
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
