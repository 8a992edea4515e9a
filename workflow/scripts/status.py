"""Show how far the grid is: cells done, running, waiting, diverged and failed, and the time that is left."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.grid.plan import Plan
from bflp.reporting.status import STATES, describe, find
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_settings_arguments(parser)
    parser.add_argument("--list", nargs="+", choices=STATES, default=[], metavar="STATE", help=f"{', '.join(STATES)}")
    arguments = parser.parse_args()
    print(describe(find(Plan(settings_of(arguments))), arguments.list))


if __name__ == "__main__":
    run_script(main)
