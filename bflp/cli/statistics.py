"""Compare all rows with a reference row, paired by seed: what can be claimed.

With --partial: from the cells that have run so far, at any time, also while the workflow runs; into tables_partial and
figures_partial.
"""

import argparse
import textwrap
from dataclasses import replace

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from, shown_frame
from bflp.reporting.figures import differences, rank_diagram, style
from bflp.reporting.formats import write_table
from bflp.reporting.markdown import to_markdown
from bflp.reporting.statistics.analysis import of_plan
from bflp.reporting.statistics.table import statistics_tables
from bflp.reporting.statistics.words import summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    parser.add_argument("--partial", action="store_true", help="statistics of what is there, naming what is missing")
    parser.add_argument("--show", action="store_true", help="print the paragraph and the tables, too")


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    statistics = of_plan(plan, shown_frame(plan, arguments.partial))
    suffix = "_partial" if arguments.partial else ""
    tables, folder = statistics_tables(statistics), plan.results / f"tables{suffix}"
    for table in tables:
        write_table(table, folder)
    for name, figure in (("differences", differences), ("ranks", rank_diagram)):
        style.save(figure.draw(statistics), plan.results / f"figures{suffix}" / name)
    if arguments.show:
        paragraph = summary(statistics)
        print(textwrap.fill(paragraph, 120) + "\n")
        for table in tables:
            print(to_markdown(replace(table, caption=table.caption.removeprefix(paragraph).strip())))
    print(
        f"Statistics: {folder}/ ({', '.join(table.name for table in tables)}; .tex, .md, .html), "
        f"{plan.results}/figures{suffix}/ (differences, ranks; .pdf, .svg)"
    )
