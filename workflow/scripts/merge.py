"""Merge the results of all cells that the config names into one tidy results.csv.

Each result is checked: it must be whole, of its cell, and made with the present settings, code and data.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.errors import DataError
from bflp.grid.plan import Plan
from bflp.results.frame import collect, describe_stale, write_merged
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_settings_arguments(parser)
    arguments = parser.parse_args()
    plan = Plan(settings_of(arguments))
    frame, stale = collect(plan)
    if stale:
        raise DataError(describe_stale(stale))
    print(f"{write_merged(plan, frame)}: {len(frame)} cells")


if __name__ == "__main__":
    run_script(main)
