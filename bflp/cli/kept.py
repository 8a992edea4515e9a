"""Show what is kept of earlier settings, code and data, and free the space.

Finished results, models and checkpoints stay in the folder `kept` of the results, so that going back to what made them
trains nothing. With --remove others: remove what the present config would not use; with --remove all: everything,
after which going back trains again.
"""

import argparse
import contextlib
import json
import shutil
from collections import defaultdict
from collections.abc import Set
from pathlib import Path

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from
from bflp.errors import DataError, UserError
from bflp.grid.plan import Plan
from bflp.provenance.state import data_hashes
from bflp.runtime import progress
from bflp.runtime.kept import stored
from bflp.runtime.lock import holder, is_held


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
    present = {plan.cell_identity(cell, hashes) for cell in plan.cells}
    # Also of fewer or more rounds: a longer run goes on from a shorter one's checkpoint.
    bases = {identity.partition("-")[0] for identity in present}
    if arguments.remove:
        _refuse_running(plan, bases if arguments.remove == "others" else set())
    groups = defaultdict(list)
    for identity, file in stored(plan.paths.kept):
        groups["this config" if identity.partition("-")[0] in bases else "other settings, code or data"].append(file)
    for group, files in groups.items():
        remove = arguments.remove == "all" or (arguments.remove == "others" and group != "this config")
        size = sum(map(_size, files))
        cells = sorted({_dataset(file) for file in files if file.name.count(".") == 1 and file.suffix == ".json"})
        print(
            f"{group}: {len(files)} files and folders, {size / 1e6:.1f} MB of their own "
            f"({', '.join(cells) or 'checkpoints only'})"
        )
        if remove:
            for file in files:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
            print("  removed")
    if not groups:
        print(f"nothing is kept in {plan.paths.kept}")


def _dataset(result: Path) -> str:
    try:
        return str(json.loads(result.read_text(encoding="utf-8"))["cell"]["dataset"])
    except (ValueError, KeyError, TypeError):
        return f"{result.name} is damaged"


def _size(file: Path) -> int:
    """What removing a file or folder frees: nothing where it has a second link, the present result."""
    with contextlib.suppress(FileNotFoundError):  # a cell that runs drops what it needs no more
        if file.is_dir():
            return sum(map(_size, file.iterdir()))
        return file.stat().st_size if file.stat().st_nlink == 1 else 0
    return 0


def _refuse_running(plan: Plan, spared: Set[str]) -> None:
    """Raise UserError while a cell is trained whose files would go: its clients would begin anew without a word.

    spared: identities, without rounds, whose files stay.
    """
    for lock in sorted((plan.results / "progress").rglob("*.lock")):
        identity = progress.read(lock.with_suffix(".json")).get("identity", "")
        if identity.partition("-")[0] not in spared and is_held(lock):
            raise UserError(f"{lock}: a cell is being trained by {holder(lock)}: wait for it, or stop it")
