"""Say in plain words which cells would run, and why: from what their results record of what made them.

With --paths: only the paths of results that merging would refuse; to delete them: why.py --paths | xargs -rd '\\n' rm
Snakemake, asked with -n, decides by records of its own (.snakemake); where these are lost, results that are not up to
date are not run again by themselves, but merging refuses them.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.datasets import prepared as arrays
from bflp.grid.plan import Cell, Plan
from bflp.provenance import reasons
from bflp.results.frame import data_hashes
from bflp.runtime.termination import run_script

MOST_LISTED = 10
UP_TO_DATE, DIVERGED = "up to date", "up to date: diverged, and recorded as that"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="?", default="", help="only cells whose name holds this text, as fmnist/iid")
    add_settings_arguments(parser)
    parser.add_argument("--all", action="store_true", help=f"list more than {MOST_LISTED} cells of a reason")
    parser.add_argument("--paths", action="store_true", help="only the paths of results that merging would refuse")
    arguments = parser.parse_args()
    plan = Plan(settings_of(arguments))
    groups: dict[str, list[Cell]] = defaultdict(list)
    hashes, anew = data_hashes(plan), _prepared_anew(plan)
    if not arguments.paths:
        # Merging asks for no data, and takes results without them.
        anew |= _not_there(plan)
    for cell in plan.cells:
        if arguments.cells in str(cell):
            groups[_reason(plan, cell, hashes, anew)].append(cell)
    fine = {reason: groups.pop(reason) for reason in (UP_TO_DATE, DIVERGED) if reason in groups}
    if arguments.paths:
        present = (plan.result_file(cell) for cells in groups.values() for cell in cells)
        print("\n".join(str(path) for path in present if path.exists()))
        return
    would_run, right = (sum(map(len, kind.values())) for kind in (groups, fine))
    print(f"{would_run + right} cells: {right} up to date, {would_run} would run")
    shown = groups | {reason: cells for reason, cells in fine.items() if reason == DIVERGED}
    for reason, cells in sorted(shown.items(), key=lambda group: -len(group[1])):
        print(f"\n{len(cells)} cell{'s' if len(cells) > 1 else ''}: {reason}")
        listed = cells if arguments.all else cells[:MOST_LISTED]
        print("".join(f"  {cell}\n" for cell in listed), end="")
        if len(cells) > len(listed):
            print(f"  and {len(cells) - len(listed)} more (--all lists them)")


def _prepared_anew(plan: Plan) -> dict[str, str]:
    """Why data sets are prepared anew; their cells then run again, whatever comes out."""
    found = {dataset: reasons.preparation(plan, dataset) for dataset in plan.datasets()}
    return {dataset: reason for dataset, reason in found.items() if reason}


def _not_there(plan: Plan) -> dict[str, str]:
    """The data sets without a prepared file: tables need them, and what is made of them is made anew, too."""
    files = {dataset: plan.data_file(dataset) for dataset in plan.datasets()}
    return {
        dataset: f"there is no {file}"
        for dataset, file in files.items()
        if not (file.exists() and arrays.summary_file(file).exists())
    }


def _reason(plan: Plan, cell: Cell, hashes: dict[str, str], anew: dict[str, str]) -> str:
    try:
        result = json.loads(plan.result_file(cell).read_text(encoding="utf-8"))
        reason = reasons.mismatch(result, json.loads(plan.job(cell)), hashes)
    except FileNotFoundError:
        return _no_result(plan, cell)
    except (ValueError, KeyError, TypeError, AttributeError):
        return "its result is damaged: merging will refuse it until you delete it"
    for dataset in (cell.dataset, plan.settings.evaluation.out_of_distribution):
        if dataset in anew:
            return f"the data set {dataset} is to be prepared anew: {anew[dataset]}"
    if reason:
        return f"its result is of {reason}"
    return DIVERGED if result["diverged"] else UP_TO_DATE


def _no_result(plan: Plan, cell: Cell) -> str:
    reason = "no result yet"
    if any(plan.checkpoint_folder(cell).glob("round*.safetensors")):
        reason += ", but a checkpoint to go on from"
    log = plan.log_file(cell)
    if log.exists():
        errors = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if "error: " in line]
        if errors:
            # Without the cell's name, so that cells with the same error stand together.
            reason += f"; the last try ended with {errors[-1].replace(str(cell), 'the cell')}"
    return reason


if __name__ == "__main__":
    run_script(main)
