"""Compare results with the published tables, and check the paper's claims over them.

With --partial: from the cells that have run so far. With --archive: from the JSON files below a folder `cells`,
whatever code made them.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.errors import DataError
from bflp.files import whole_file, write_text
from bflp.grid.plan import Plan
from bflp.paper.claims import check_all
from bflp.paper.comparison import compare, comparison_table, summary
from bflp.paper.comparison_figure import draw
from bflp.reporting.figures import save
from bflp.reporting.tables import FORMATS, to_markdown
from bflp.results.frame import collect, collect_archive, read_merged
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_settings_arguments(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--partial", action="store_true", help="from the cells that have run so far")
    source.add_argument("--archive", type=Path, help="a folder that holds cells/...; tables go beside it")
    arguments = parser.parse_args()
    if arguments.archive:
        frame, folder = collect_archive(arguments.archive / "cells"), arguments.archive
    else:
        plan = Plan(settings_of(arguments))
        folder = plan.results / ("tables_partial" if arguments.partial else "tables")
        if arguments.partial:
            frame, _ = collect(plan, partial=True)
        else:
            frame = read_merged(plan)
    compared = compare(frame)
    if compared.empty:
        raise DataError("none of the cells that have run is in the published tables: there is nothing to compare")
    with whole_file(folder / "comparison.csv") as temporary:
        compared.to_csv(temporary, index=False, float_format="%.4f")
    table = comparison_table(compared)
    for suffix, render in FORMATS.items():
        write_text(folder / f"comparison.{suffix}", render(table))
    save(draw(compared), folder / "comparison")
    lines = [f"- **{verdict.outcome}**: {verdict.claim} ({verdict.detail})" for verdict in check_all(frame)]
    write_text(folder / "claims.md", "\n".join(lines) + "\n")
    counts = summary(compared)
    print(to_markdown(table))
    print("\n".join(lines))
    print(f"\n{counts['compared']} numbers compared, {counts['marked']} beyond 3: {folder}/comparison.md, claims.md")


if __name__ == "__main__":
    run_script(main)
