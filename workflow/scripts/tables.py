"""Make the tables in LaTeX, Markdown and HTML (sortable).

With --partial: from the cells that have run so far, at any time, also while the workflow runs; into tables_partial.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.datasets import prepared as arrays
from bflp.files import write_text
from bflp.grid.plan import Plan
from bflp.reporting.tables import FORMATS, make_tables, to_markdown
from bflp.results.frame import collect, describe_stale, read_merged
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_settings_arguments(parser)
    parser.add_argument("--partial", action="store_true", help="tables of what is there, marking what is missing")
    parser.add_argument("--show", action="store_true", help="print the tables, too")
    arguments = parser.parse_args()
    plan = Plan(settings_of(arguments))
    if arguments.partial:
        frame, stale = collect(plan, partial=True)
        if stale:
            print(f"warning: {describe_stale(stale)}", file=sys.stderr)
        print(f"{len(frame)} of {len(plan.cells)} cells have a result")
    else:
        frame = read_merged(plan)
    summaries = {
        dataset: arrays.read_summary(plan.data_file(dataset))
        for dataset in plan.settings.grid.datasets
        if arrays.summary_file(plan.data_file(dataset)).exists()
    }
    folder = plan.results / ("tables_partial" if arguments.partial else "tables")
    tables = make_tables(plan.settings, frame, summaries)
    for table in tables:
        for suffix, render in FORMATS.items():
            write_text(folder / f"{table.name}.{suffix}", render(table))
    if arguments.show:
        print("\n" + "\n".join(to_markdown(table) for table in tables if table.name != "datasets"))
    names = ", ".join(table.name for table in tables)
    print(f"Tables in LaTeX (.tex), Markdown (.md) and HTML (.html): {folder}/ ({names})")


if __name__ == "__main__":
    run_script(main)
