"""Compare results with the published tables that have their cells, and check claims.

With --partial: from the cells that have run so far. With --archive: from the JSON files below a folder `cells`,
whatever code made them.
"""

import argparse
from pathlib import Path

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import finished_cells, plan_from
from bflp.errors import DataError
from bflp.files import whole_file, write_text
from bflp.paper.claims import CLAIMS, in_words
from bflp.paper.comparison import compare, comparison_table, left_out, set_ups, summary
from bflp.paper.comparison_figure import draw
from bflp.paper.sources import planned
from bflp.reporting.figures import style
from bflp.reporting.formats import write_table
from bflp.reporting.markdown import to_markdown
from bflp.results.frame import frame, read_folder
from bflp.results.merged import read_merged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--partial", action="store_true", help="from the cells that have run so far")
    source.add_argument("--archive", type=Path, help="a folder that holds cells/...; tables are written into it")


def run(arguments: argparse.Namespace) -> None:
    if arguments.archive:
        finished, folder = read_folder(arguments.archive), arguments.archive
        found, setups = frame(finished), set_ups(finished)
    else:
        plan = plan_from(arguments)
        found = frame(finished_cells(plan)) if arguments.partial else read_merged(plan)
        folder = plan.results / ("tables_partial" if arguments.partial else "tables")
        setups = [(cell, planned(plan, cell)) for cell in plan.cells]
    compared = compare(found, setups)
    gone = left_out(found)
    if compared.empty:
        what = "none of the cells that have run is in the published tables: there is nothing to compare"
        raise DataError(f"{what}. {gone}" if gone else what)
    with whole_file(folder / "comparison.csv") as temporary:
        compared.to_csv(temporary, index=False, float_format="%.4f")
    table = comparison_table(compared, gone)
    write_table(table, folder)
    style.save(draw(compared), folder / "comparison")
    claims = "\n".join(in_words(source, found) for source in dict.fromkeys(compared["source"]) if source in CLAIMS)
    claims += f"\n{gone}\n" if gone else ""
    write_text(folder / "claims.md", claims)
    print(to_markdown(table))
    print(claims)
    print(f"{summary(compared)}: {folder}/comparison.md, claims.md")
