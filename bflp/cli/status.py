"""Show how far the grid is.

Cells done, running, waiting, killed, failed, diverged and stale, and the time that is left.
"""

import argparse

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from
from bflp.reporting.status import STATES, describe, find


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    parser.add_argument("--list", nargs="+", choices=STATES, default=[], metavar="STATE", help=f"{', '.join(STATES)}")


def run(arguments: argparse.Namespace) -> None:
    print(describe(find(plan_from(arguments)), arguments.list))
