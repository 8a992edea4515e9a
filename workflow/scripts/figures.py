"""Make the figures in PDF and SVG, a folder per block of cells (data set, partition, number of clients).

With --partial: from the cells that have run so far, at any time, also while the workflow runs; into figures_partial.
"""

import argparse
import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.errors import ConfigError, DataError
from bflp.grid.plan import Plan
from bflp.reporting import figures as plots
from bflp.reporting.figures.loading import load_block
from bflp.results.frame import describe_stale
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_settings_arguments(parser)
    parser.add_argument("--block", metavar="DATASET/PARTITION/CLIENTS", help="only this block (default: all)")
    parser.add_argument("--round-time", type=Path, metavar="CSV", help="only the round times, from a round_time.csv")
    parser.add_argument("--partial", action="store_true", help="figures of what is there, saying what is missing")
    arguments = parser.parse_args()
    plan = Plan(settings_of(arguments))
    if arguments.round_time is not None:
        with arguments.round_time.open(encoding="utf-8", newline="") as file:
            plots.save(plots.draw_round_time(list(csv.DictReader(file))), plan.results / "figures" / "round_time")
        return
    blocks = {"/".join(map(str, block)): block for block in plan.blocks()}
    if arguments.block is not None and arguments.block not in blocks:
        raise ConfigError(f"the block {arguments.block} is not in the grid (known: {', '.join(blocks)})")
    folder = plan.results / ("figures_partial" if arguments.partial else "figures")
    for name in [arguments.block] if arguments.block else blocks:
        block, stale = load_block(plan, *blocks[name], partial=arguments.partial)
        if stale and not arguments.partial:
            raise DataError(describe_stale(stale))
        if stale:
            print(f"warning: {describe_stale(stale)}", file=sys.stderr)
        kinds = plots.kinds(plan.settings)
        for kind in kinds:
            plots.save(plots.draw(kind.name, block), folder / name / kind.name)
        print(f"{folder / name}: {', '.join(kind.name for kind in kinds)} (.pdf and .svg)")


if __name__ == "__main__":
    run_script(main)
