"""Say in plain words which cells would run, and why.

From what each result records of how it was made. With --paths: only the paths of results that merging would refuse; to
delete them: bflp why --paths | xargs -rd '\\n' rm
Snakemake, asked with -n, decides by records of its own (.snakemake); where these are lost, results that are not up to
date are not run again by themselves, but merging refuses them.
"""

import argparse
from collections import defaultdict

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import listed, plan_from
from bflp.datasets.prepared import summary_file
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.provenance import reasons
from bflp.provenance.state import CellState, data_hashes, state
from bflp.reporting.status import why_failed
from bflp.runtime import progress
from bflp.runtime.kept import SUFFIXES, CheckpointRounds

MOST_LISTED = 10
UP_TO_DATE, DIVERGED = "up to date", "up to date: diverged, and recorded as that"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="?", default="", help="only cells whose name holds this text, as fmnist/iid")
    add_settings_arguments(parser)
    parser.add_argument("--all", action="store_true", help=f"list more than {MOST_LISTED} cells of a reason")
    parser.add_argument("--paths", action="store_true", help="only the paths of results that merging would refuse")


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    groups: dict[str, list[Cell]] = defaultdict(list)
    hashes, checkpoints = data_hashes(plan), CheckpointRounds(plan.paths.kept)
    again = _to_be_prepared(plan, also_missing=not arguments.paths)
    unevaluated = 0
    for cell in plan.cells:
        if arguments.cells in str(cell):
            found = state(plan, cell, hashes)
            unevaluated += found.is_right and found.evaluation is None
            groups[_reason(plan, found, hashes, again, checkpoints)].append(cell)
    fine = {reason: groups.pop(reason) for reason in (UP_TO_DATE, DIVERGED) if reason in groups}
    if arguments.paths:
        for path in (plan.paths.result(cell) for cells in groups.values() for cell in cells):
            if path.exists():
                print(path)
        return
    would_run, right = (sum(map(len, kind.values())) for kind in (groups, fine))
    print(f"{would_run + right} cells: {right} up to date, {would_run} would run")
    if unevaluated:
        print(f"of those up to date {unevaluated} would be evaluated, without training")
    shown = groups | {reason: cells for reason, cells in fine.items() if reason == DIVERGED}
    for reason, cells in sorted(shown.items(), key=lambda group: -len(group[1])):
        print(f"\n{len(cells)} cell{'s' if len(cells) > 1 else ''}: {reason}")
        print(listed(cells, None if arguments.all else MOST_LISTED), end="")


def _to_be_prepared(plan: Plan, also_missing: bool) -> dict[str, str]:
    """Why data sets are prepared again; their cells then run again, whatever comes out.

    also_missing: those without a prepared file, too, which tables need; merging takes results without them.
    """
    found = {dataset: reasons.preparation(plan, dataset) for dataset in plan.datasets()}
    for dataset in plan.datasets() if also_missing else ():
        file = plan.paths.data(dataset)
        if not (file.exists() and summary_file(file).exists()):
            found[dataset] = f"there is no {file}"
    return {dataset: reason for dataset, reason in found.items() if reason}


def _reason(
    plan: Plan, found: CellState, hashes: dict[str, str], again: dict[str, str], checkpoints: CheckpointRounds
) -> str:
    cell = found.cell
    if found.kind == "missing":
        return _no_result(plan, cell, hashes, checkpoints)
    if found.kind == "damaged":
        return "its result is damaged: merging will refuse it until you delete it"
    if cell.dataset in again:
        return f"the data set {cell.dataset} has to be prepared again: {again[cell.dataset]}"
    if found.kind == "stale":
        return f"its result is of {found.reason}" + _kept(plan, cell, hashes, checkpoints)
    return DIVERGED if found.kind == "diverged" else UP_TO_DATE


def _kept(plan: Plan, cell: Cell, hashes: dict[str, str], checkpoints: CheckpointRounds) -> str:
    """What is kept that saves the training, or a part of it."""
    identity = plan.cell_identity(cell, hashes)
    needed = ("result", "model", *(["clients"] if plan.settings.keep_clients else []))
    if all((plan.paths.kept / f"{identity}{SUFFIXES[what]}").exists() for what in needed):
        return ", but one is kept that will be put back"
    return ", but a checkpoint to go on from" if checkpoints.of(identity) else ""


def _no_result(plan: Plan, cell: Cell, hashes: dict[str, str], checkpoints: CheckpointRounds) -> str:
    reason = "no result yet" + _kept(plan, cell, hashes, checkpoints)
    if not hashes.get(cell.dataset) and plan.paths.kept.exists():
        reason += f"; whether one is kept is known once {cell.dataset} is prepared"
    failed = why_failed(progress.read(plan.paths.progress(cell)))
    # Without the cell's name, so that cells with the same error stand together.
    return reason + (f"; the last try ended with: {failed.replace(str(cell), 'the cell')}" if failed else "")
