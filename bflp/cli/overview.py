"""Make pages (HTML) about a run.

Its settings and versions, its cells with their times, and times by row.
With --partial: of the cells that have run so far; into overview_partial.
"""

import argparse

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from
from bflp.files import write_text
from bflp.provenance.state import refuse_unfit, states
from bflp.reporting.overview import make_pages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    parser.add_argument("--partial", action="store_true", help="of the cells that have run so far")


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    found = states(plan)
    if not arguments.partial:
        refuse_unfit(found)
    results = [(item.cell, item) for item in found if item.result is not None]
    folder = plan.results / ("overview_partial" if arguments.partial else "overview")
    for name, text in make_pages(plan.settings, results).items():
        write_text(folder / f"{name}.html", text)
    print(f"{folder}: {len(results)} cells")
