"""Make the tables in LaTeX, Markdown and HTML (sortable).

With --partial: from the cells that have run so far, at any time, also while the workflow runs; into tables_partial.
"""

import argparse

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from, shown_frame
from bflp.datasets import prepared
from bflp.provenance.state import states
from bflp.reporting.formats import write_table
from bflp.reporting.markdown import to_markdown
from bflp.reporting.tables import make_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    parser.add_argument("--partial", action="store_true", help="tables of what is there, marking what is missing")
    parser.add_argument("--show", action="store_true", help="print the tables, too")


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    frame = shown_frame(plan, arguments.partial)
    if arguments.partial:
        print(f"{len(frame)} of {len(plan.cells)} cells have a result")
    summaries = {
        dataset: prepared.read_summary(plan.paths.data(dataset))
        for dataset in plan.settings.grid.datasets
        if prepared.summary_file(plan.paths.data(dataset)).exists()
    }
    results = {}
    if plan.settings.tables.target_accuracy is not None:
        results = {item.cell: item.result for item in states(plan) if item.result is not None}
    folder = plan.results / ("tables_partial" if arguments.partial else "tables")
    tables = make_tables(plan, frame, summaries, results)
    for table in tables:
        write_table(table, folder)
    if arguments.show:
        print("\n" + "\n".join(to_markdown(table) for table in tables if table.name != "datasets"))
    names = ", ".join(table.name for table in tables)
    print(f"Tables in LaTeX (.tex), Markdown (.md) and HTML (.html): {folder}/ ({names})")
