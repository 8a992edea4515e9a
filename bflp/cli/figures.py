"""Make the figures in PDF and SVG.

A folder per block of cells (data set, partition, set-up).
With --partial: from the cells that have run so far, at any time, also while the workflow runs; into figures_partial.
"""

import argparse
import csv
import sys
from pathlib import Path

from bflp.cli.arguments import BLOCK, add_settings_arguments
from bflp.cli.common import blocks_from, plan_from
from bflp.errors import DataError
from bflp.provenance.state import describe_stale
from bflp.reporting.figures import draw, figures_of, style
from bflp.reporting.figures.loading import load_block
from bflp.reporting.figures.round_time import draw as draw_round_time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_arguments(parser)
    parser.add_argument("--block", metavar=BLOCK, help="only this block (default: all)")
    parser.add_argument("--round-time", type=Path, metavar="CSV", help="only the round times, from a round_time.csv")
    parser.add_argument("--partial", action="store_true", help="figures of what is there, saying what is missing")


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    if arguments.round_time is not None:
        try:
            with arguments.round_time.open(encoding="utf-8", newline="") as file:
                figure = draw_round_time(plan, list(csv.DictReader(file)))
        except (ValueError, KeyError, TypeError, csv.Error) as error:
            wrong = f"{arguments.round_time} does not hold round times of this config ({error})"
            raise DataError(f"{wrong}: run snakemake round_time") from None
        style.save(figure, plan.results / "figures" / "round_time")
        return
    folder = plan.results / ("figures_partial" if arguments.partial else "figures")
    for name, coordinates in blocks_from(arguments, plan).items():
        block, stale = load_block(plan, *coordinates, partial=arguments.partial)
        if stale:
            print(f"warning: {describe_stale(stale)}", file=sys.stderr)
        for figure_name in figures_of(plan):
            style.save(draw(figure_name, block), folder / name / figure_name)
        print(f"{folder / name}: {', '.join(figures_of(plan))} (.pdf and .svg)")
