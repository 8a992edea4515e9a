"""Make pages (HTML) about a run: its settings and versions, its cells with their times, and times by row.

With --partial: of the cells that have run so far; into overview_partial.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.files import write_text
from bflp.grid.plan import Plan
from bflp.reporting.overview import make_pages
from bflp.results.frame import read_result
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_settings_arguments(parser)
    parser.add_argument("--partial", action="store_true", help="of the cells that have run so far")
    arguments = parser.parse_args()
    plan = Plan(settings_of(arguments))
    results = [
        (cell, read_result(plan.result_file(cell), cell))
        for cell in plan.cells
        if not arguments.partial or plan.result_file(cell).exists()
    ]
    folder = plan.results / ("overview_partial" if arguments.partial else "overview")
    for name, text in make_pages(plan.settings, results).items():
        write_text(folder / f"{name}.html", text)
    print(f"{folder}: {len(results)} cells")


if __name__ == "__main__":
    run_script(main)
