"""Evaluate trained models again, without training them.

Where settings or code of the final evaluation have changed; evaluations that are up to date are left as they are.
"""

import argparse

from bflp.cli.arguments import BLOCK, CELL, add_settings_arguments
from bflp.cli.common import blocks_from, cell_from, plan_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--block", metavar=BLOCK, help="only this block of cells (default: all)")
    chosen.add_argument("--cell", metavar=CELL, help="only the block that this cell belongs to")


def run(arguments: argparse.Namespace) -> None:
    from bflp.runtime.evaluate_block import evaluate_block

    plan = plan_from(arguments)
    if arguments.cell is not None:
        cell = cell_from(arguments, plan)
        arguments.block = f"{cell.dataset}/{cell.partition}/{cell.clients}"
    for block in blocks_from(arguments, plan).values():
        evaluate_block(plan, block)
