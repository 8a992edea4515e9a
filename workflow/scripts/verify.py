"""Check all that a results folder holds: is each file whole, and what the present settings, code and data would give?

Ends with exit code 1 when something is wrong. Results that are missing yet, and files that the config does not name,
are listed, but are not wrong.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.grid.plan import Plan
from bflp.provenance.verify import verify
from bflp.runtime.termination import run_script

MOST_LISTED = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_settings_arguments(parser)
    parser.add_argument("--all", action="store_true", help=f"list more than {MOST_LISTED} files of a kind")
    arguments = parser.parse_args()
    plan = Plan(settings_of(arguments))
    report = verify(plan)
    most = None if arguments.all else MOST_LISTED
    _list("wrong", report.wrong, most)
    _list("not wrong, but to be known", report.remarks, most)
    _list("without a result yet (run snakemake)", report.missing, most)
    print(
        f"{plan.results}: {len(plan.cells)} cells, {report.results} results are right, "
        f"{len(report.missing)} missing; {len(report.wrong)} file(s) wrong"
    )
    if report.wrong:
        sys.exit(1)


def _list(title: str, items: list, most: int | None) -> None:
    if items:
        print(f"{title}:")
        for item in items[:most]:
            print(f"  {item}")
        if most is not None and len(items) > most:
            print(f"  and {len(items) - most} more (--all lists them)")


if __name__ == "__main__":
    run_script(main)
