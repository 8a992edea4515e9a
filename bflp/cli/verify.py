"""Check all that a results folder holds, or an archive that `bflp archive` made.

Is each file whole, and what the present settings, code and data would give? Ends with exit code 1 when something is
wrong. Results that are missing yet, and files that the config does not name, are listed, but are not wrong.
Of an archive, zipped or unpacked: is each file as it was written, and are the tables what the results give? This needs
neither the project's data nor its config.
"""

import argparse
import sys
from pathlib import Path

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import listed, plan_from
from bflp.provenance.verify import verify

MOST_LISTED = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", nargs="?", type=Path, metavar="FILE.zip", help="an archive, or its unpacked folder")
    add_settings_arguments(parser)
    parser.add_argument("--all", action="store_true", help=f"list more than {MOST_LISTED} files of a kind")


def run(arguments: argparse.Namespace) -> None:
    if arguments.archive is not None:
        _run_archive(arguments)
        return
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


def _run_archive(arguments: argparse.Namespace) -> None:
    # Imported here: it needs pandas.
    from bflp.archive.check import check

    report = check(arguments.archive)
    if report.wrong:
        print(f"wrong:\n{listed(report.wrong, None if arguments.all else MOST_LISTED)}", end="")
        print(f"{arguments.archive}: {len(report.wrong)} file(s) wrong")
        sys.exit(1)
    print(
        f"{arguments.archive}: {report.cells} cells, {report.files} files, all as they were written; "
        "results.csv, rounds.csv and the tables are what the cells' results give"
    )
