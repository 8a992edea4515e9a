"""Check all that a results folder holds.

Is each file whole, and what the present settings, code and data would give? Ends with exit code 1 when something is
wrong. Results that are missing yet, and files that the config does not name, are listed, but are not wrong.
"""

import argparse
import sys

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import listed, plan_from
from bflp.provenance.verify import verify

MOST_LISTED = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    parser.add_argument("--all", action="store_true", help=f"list more than {MOST_LISTED} files of a kind")


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    report = verify(plan)
    for title, items in (
        ("wrong", report.wrong),
        ("not wrong, but worth knowing", report.remarks),
        ("without a result yet (run snakemake)", report.missing),
    ):
        if items:
            print(f"{title}:\n{listed(items, None if arguments.all else MOST_LISTED)}", end="")
    print(
        f"{plan.results}: {len(plan.cells)} cells, {report.results} results are right, "
        f"{len(report.missing)} missing; {len(report.wrong)} file(s) wrong"
    )
    if report.wrong:
        sys.exit(1)
