"""Put all tables (.tex) into one PDF, tables.pdf, with pdflatex."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.grid.plan import Plan
from bflp.reporting.pdf import compile_tables
from bflp.reporting.tables import table_names
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_settings_arguments(parser)
    parser.add_argument("--folder", type=Path, help="of the .tex files (default: tables in the config's results_dir)")
    arguments = parser.parse_args()
    settings = settings_of(arguments)
    folder = arguments.folder or Plan(settings).results / "tables"
    files = [folder / f"{name}.tex" for name in table_names(settings)]
    # What other targets have made belongs there, too.
    files += [folder / f"{name}.tex" for name in ("round_time", "comparison") if (folder / f"{name}.tex").exists()]
    compile_tables(files, folder / "tables.pdf")
    print(folder / "tables.pdf")


if __name__ == "__main__":
    run_script(main)
