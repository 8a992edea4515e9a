"""The first rounds of a cell that begins with the initial weights of another seed: what of a seed is its weights?

    python benchmarks/initial_weights.py CELL --weights SEED [--rounds 10] [--configfile FILE]

All else is the cell's: its partition, the order of samples, the noise. Prints lines of a CSV as that in
docs/reproduction/reference. With the cell's own seed the accuracies are the cell's own, to the bit. The data must be
prepared (`bflp prepare`).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bflp.cli import partition
from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from
from bflp.engine.round import Federation
from bflp.engine.work import Broadcast, Work
from bflp.grid.cell import Cell
from bflp.grid.job import Job
from bflp.runtime.inputs import Assignment
from bflp.runtime.pool import SerialExecutor
from bflp.runtime.rule import checked_rule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cell", type=Cell.parse)
    parser.add_argument("--weights", type=int, required=True, metavar="SEED", help="whose initial weights")
    parser.add_argument("--rounds", type=int, default=10)
    add_settings_arguments(parser)
    arguments = parser.parse_args()
    plan, cell = plan_from(arguments), arguments.cell
    data, split = plan.paths.data(cell.dataset), plan.partition_file(cell)
    if not split.exists():
        with contextlib.redirect_stdout(sys.stderr):
            partition.make(plan.partition_job_of(cell), data, split)
    assignment = Assignment(Job.parse(plan.job(cell)), data, split)
    work = assignment.work()
    other = Work(replace(work.settings, seed=arguments.weights), work.inputs, "cpu")
    federation = Federation(work, plan.settings.evaluation.ece_bins, checked_rule(assignment))
    server, executor = Broadcast(other.initial), SerialExecutor(work)
    for round_ in range(1, arguments.rounds + 1):
        outcome = federation.round(server, round_, executor)
        server = outcome.server
        accuracy = (outcome.curves or {}).get("accuracy", "")
        print(f"{cell},{arguments.weights},{round_},{accuracy}", flush=True)


if __name__ == "__main__":
    main()
