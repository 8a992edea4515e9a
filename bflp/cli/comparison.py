"""Compare results with the published tables, and check the paper's claims.

With --partial: from the cells that have run so far. With --archive: from the JSON files below a folder `cells`,
whatever code made them.
"""

import argparse
from pathlib import Path

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import partial_frame, plan_from
from bflp.errors import DataError
from bflp.files import whole_file, write_text
from bflp.paper.claims import check_all
from bflp.paper.comparison import compare, comparison_table, summary
from bflp.paper.comparison_figure import draw
from bflp.reporting.figures import style
from bflp.reporting.formats import write_table
from bflp.reporting.markdown import to_markdown
from bflp.results.frame import frame, read_folder
from bflp.results.merged import read_merged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--partial", action="store_true", help="from the cells that have run so far")
    source.add_argument("--archive", type=Path, help="a folder that holds cells/...; tables go beside it")


def run(arguments: argparse.Namespace) -> None:
    if arguments.archive:
        found, folder = frame(read_folder(arguments.archive)), arguments.archive
    else:
        plan = plan_from(arguments)
        folder = plan.results / ("tables_partial" if arguments.partial else "tables")
        found = partial_frame(plan) if arguments.partial else read_merged(plan)
    compared = compare(found)
    if compared.empty:
        raise DataError("none of the cells that have run is in the published tables: there is nothing to compare")
    with whole_file(folder / "comparison.csv") as temporary:
        compared.to_csv(temporary, index=False, float_format="%.4f")
    table = comparison_table(compared)
    write_table(table, folder)
    style.save(draw(compared), folder / "comparison")
    lines = [f"- **{verdict.outcome}**: {verdict.claim} ({verdict.detail})" for verdict in check_all(found)]
    write_text(folder / "claims.md", "\n".join(lines) + "\n")
    counts = summary(compared)
    print(to_markdown(table))
    print("\n".join(lines))
    print(f"\n{counts['compared']} numbers compared, {counts['marked']} beyond 3: {folder}/comparison.md, claims.md")
