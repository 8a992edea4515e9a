"""Put all tables (.tex) into one PDF, tables.pdf, with pdflatex."""

import argparse
from pathlib import Path

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from
from bflp.reporting.pdf import compile_tables
from bflp.reporting.titles import ON_DEMAND, table_titles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    parser.add_argument("--folder", type=Path, help="of the .tex files (default: tables in the config's results_dir)")


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    folder = arguments.folder or plan.results / "tables"
    files = [folder / f"{name}.tex" for name in table_titles(plan)]
    # What other targets have made belongs there, too.
    further = (folder / f"{name}.tex" for name in ON_DEMAND)
    files += [file for file in further if file.exists()]
    compile_tables(files, folder / "tables.pdf")
    print(folder / "tables.pdf")
