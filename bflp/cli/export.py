"""Write results in the form of another program: TensorBoard's.

Of the cells that have run so far. What is stale or damaged is named.
"""

import argparse
from pathlib import Path

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import finished_cells, plan_from
from bflp.errors import UserError
from bflp.reporting.tensorboard import write_events


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tensorboard", type=Path, required=True, metavar="DIR", help="a new folder, for `tensorboard --logdir DIR`"
    )
    add_settings_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    finished = finished_cells(plan)
    if not finished:
        raise UserError(f"there is no result in {plan.results} yet: run snakemake")
    write_events(finished, arguments.tensorboard)
    print(f"{len(finished)} of {len(plan.cells)} cells; to look at them: tensorboard --logdir {arguments.tensorboard}")
