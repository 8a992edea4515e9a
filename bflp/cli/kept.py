"""Show what is kept of earlier settings, code and data, and free the space.

Finished results, models and checkpoints stay in the folder `kept` of the results, so that going back to what made them
trains nothing. With --remove others: remove what the present config would not use; with --remove all: everything.
"""

import argparse
import json
from collections import defaultdict

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from
from bflp.errors import DataError
from bflp.grid.job import Job
from bflp.provenance.state import data_hashes
from bflp.runtime.kept import stored


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    parser.add_argument("--remove", choices=["others", "all"], help="free the space")


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    hashes = data_hashes(plan)
    unprepared = sorted({cell.dataset for cell in plan.cells if not hashes.get(cell.dataset)})
    if unprepared:
        unknown = (
            f"what this config uses is not known before its data are prepared ({', '.join(unprepared)}): "
            "snakemake --cores 1 prepare_all"
        )
        if arguments.remove == "others":
            raise DataError(unknown)
        print(unknown)
    present = {Job.parse(plan.job(cell)).identity(hashes.get(cell.dataset, "")) for cell in plan.cells}
    # Also of fewer or more rounds: a longer run goes on from a shorter one's checkpoint.
    bases = {identity.partition("-")[0] for identity in present}
    groups = defaultdict(list)
    for identity, file in stored(plan.paths.kept):
        groups["this config" if identity.partition("-")[0] in bases else "other settings, code or data"].append(file)
    for group, files in groups.items():
        remove = arguments.remove == "all" or (arguments.remove == "others" and group != "this config")
        # What has a second link frees nothing: it is the present result.
        size = sum(file.stat().st_size for file in files if file.stat().st_nlink == 1)
        cells = sorted(
            {
                json.loads(file.read_text())["cell"]["dataset"]
                for file in files
                if file.name.count(".") == 1 and file.suffix == ".json"
            }
        )
        print(
            f"{group}: {len(files)} files, {size / 1e6:.1f} MB of their own ({', '.join(cells) or 'checkpoints only'})"
        )
        if remove:
            for file in files:
                file.unlink()
            print("  removed")
    if not groups:
        print(f"nothing is kept in {plan.paths.kept}")
