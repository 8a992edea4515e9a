"""What a grid costs: a round of each kind of cell measured on the machine at hand, and multiplied.

    python benchmarks/grid_cost.py [--configfile config.yaml] [--stack 10] [--processes 2] [--device auto]

Rounds are those of the config, on random images: on a GPU whole ones, in one process; on the CPU, where that would take
hours, one epoch of 320 images per client, multiplied by steps, and divided by the processes. All rules count as the
first. Left out are the start of a job, some seconds per cell, and what algorithms do beside FedAvg's training. Without
a GPU, a guess for one comes from counts of a round's operations, not from measurements: at a time for each, or at a
rate of floating-point operations, both stated.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import tabulate

# The profiler's own messages; and what deterministic products on a GPU need.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.rounds import Rounds
from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import settings_of
from bflp.datasets.registry import BUILT_IN
from bflp.files import canonical_json
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.networks.lenet import MAPS, LeNetLayout

GPU_FLOPS, LAUNCH_SECONDS = 10e12, 5e-6  # sustained single precision on small products; a small kernel
PER_CLIENT, TINY = 320, 20  # images, on the CPU, and to see that it runs
# Views and allocations launch nothing.
FREE = {"view", "as_strided", "slice", "select", "empty", "permute", "t", "transpose", "unsqueeze", "squeeze", "detach"}
FREE |= {"alias", "unflatten", "flatten", "split", "expand", "numpy_T", "mT", "unbind", "empty_like", "reshape"}


def kinds(plan: Plan) -> list[list[Cell]]:
    """The cells that cost the same, but for their rule and seed."""
    found: dict[str, list[Cell]] = {}
    for cell in plan.cells:
        same = {
            key: of for key, of in plan.cell_settings(cell).items() if key not in ("weights", "aggregation", "rule")
        }
        found.setdefault(canonical_json([cell.block, same]), []).append(cell)
    return list(found.values())


def operations_per_sample(layout: LeNetLayout) -> float:
    """Floating-point operations of a training step per sample: three products a layer, conv1 without input gradient."""
    channels, height, width = layout.image_shape
    first = 2 * (height - 4) * (width - 4) * MAPS[0] * 25 * channels
    second = 2 * ((height - 4) // 2 - 4) * ((width - 4) // 2 - 4) * MAPS[1] * 25 * MAPS[0]
    dense = sum(2 * outputs * inputs for outputs, inputs in layout.dense_shapes)
    return 2 * first + 3 * second + 3 * dense * (2 if layout.variational else 1)


def counted(rounds: Rounds) -> float:
    """Seconds that a round's training would take on a GPU, by counts of what it does here."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        rounds.train()
    events = [event for event in profile.events() if event.name.startswith("aten::") and not event.cpu_parent]
    launching = sum(event.name.removeprefix("aten::") not in FREE for event in events) * rounds.whole * LAUNCH_SECONDS
    layout = rounds.work.layout
    arithmetic = operations_per_sample(layout) * rounds.samples / GPU_FLOPS if isinstance(layout, LeNetLayout) else 0.0
    return max(launching, arithmetic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_settings_arguments(parser)
    parser.add_argument("--processes", type=int, default=2, help="cores that train at the same time, on the CPU")
    parser.add_argument("--stack", type=int, choices=range(1, 10_001), metavar="N", help="as if training.stack were N")
    parser.add_argument("--tiny", action="store_true", help="few images and kinds of cells, to see that it runs")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = settings_of(arguments)
    if arguments.stack is not None:
        training = settings.training.model_copy(update={"stack": arguments.stack})
        settings = settings.model_copy(update={"training": training})
    plan = Plan(settings)
    if unknown := sorted({cell.dataset for cell in plan.cells} - BUILT_IN.keys()):
        sys.exit(f"only the sizes of built-in data sets are known here, not those of {', '.join(unknown)}")
    gpu = arguments.device == "cuda" or (arguments.device == "auto" and torch.cuda.is_available())
    device, few, processes = ("cuda", None, 1) if gpu else ("cpu", PER_CLIENT, arguments.processes)
    few = TINY if arguments.tiny else few
    rows: list[list[object]] = []
    count, total, on_gpu = 0, 0.0, 0.0
    for cells in kinds(plan)[: 2 if arguments.tiny else None]:
        cell, rounds = cells[0], Rounds(plan, cells[0], device, few)
        stack = rounds.settings.training.stack
        if stack or not rows:
            # A stack is recorded in a cell's first round; and a process loads libraries in its first.
            rounds.run()
        train, aggregation, evaluation = rounds.run()
        train *= rounds.whole / min(processes, len(rounds.tasks))
        other = aggregation + evaluation * rounds.tests / processes / rounds.settings.every
        seconds = rounds.settings.rounds * (train + other)
        count += len(cells)
        total += seconds * len(cells)
        least = None if gpu else rounds.settings.rounds * counted(rounds)
        on_gpu += (least or 0.0) * len(cells)
        start = [cell.dataset, cell.partition, cell.clients, cell.model, len(cells), stack]
        rows.append([*start, train, other, seconds / 60, least and least / 60])
    where = torch.cuda.get_device_name() if gpu else f"{processes} cores"
    headers = ["data set", "split", "set-up", "as", "cells", "stack", "train s", "other s", "min/cell", "GPU min"]
    print(tabulate.tabulate(rows, headers, floatfmt=("",) * 6 + (".2f", ".2f", ".1f", ".1f")))
    print(f"\ntrain, other: seconds per round. {count} cells: {total / 86400:.2f} days on {where}.")
    if not gpu:
        print(
            f"On one GPU {on_gpu / 86400:.2f} days, counting {LAUNCH_SECONDS * 1e6:.0f} us an operation or "
            f"{GPU_FLOPS / 1e12:.0f} TFLOP/s, whichever takes longer: training alone, not measured."
        )


if __name__ == "__main__":
    main()
