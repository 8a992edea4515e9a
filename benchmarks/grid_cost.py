"""What a grid costs: measured steps on this machine, and counted operations for a GPU.

    python benchmarks/grid_cost.py [--configfile config.yaml] [--processes 2]

Times a training step of each network of the grid, one process alone, and multiplies. The GPU figures are bounds from
counts, not measurements: floating-point operations at a rate, and small kernels at a time each, both stated.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from pathlib import Path

import tabulate

# The profiler's own messages.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import settings_of
from bflp.datasets.registry import BUILT_IN
from bflp.engine.client import client_update
from bflp.engine.settings import CellSettings
from bflp.grid.plan import Plan
from bflp.networks.lenet import MAPS, LeNet, LeNetLayout
from bflp.networks.posterior import Posterior
from bflp.rng import torch_generator

GPU_FLOPS, LAUNCH_SECONDS = 10e12, 5e-6  # sustained single precision on small products; a small kernel
SAMPLES = 640


def samples_trained(dataset: str, settings: CellSettings) -> float:
    """Training samples that one cell passes through its network."""
    per_client = BUILT_IN[dataset].train_size / settings.clients
    return settings.rounds * settings.active * per_client * settings.training.local_epochs


def seconds_per_sample(layout: LeNetLayout, settings: CellSettings) -> tuple[float, int]:
    """Median seconds per training sample in one process, and the torch operations of one step."""
    network = LeNet(layout, Posterior(), "cpu")
    vector = layout.initial_vector(-9.0, torch_generator(0, "initial model"))
    images = torch.randint(256, (SAMPLES, *layout.image_shape), dtype=torch.uint8)
    labels = torch.arange(SAMPLES) % layout.labels
    times = []
    for turn in range(6):
        start = time.perf_counter()
        client_update(network, vector, images, labels, settings, 1, turn)
        times.append(time.perf_counter() - start)
    epochs, batch = settings.training.local_epochs, settings.training.batch_size
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        client_update(network, vector, images, labels, settings, 1, 0)
    # Views and allocations launch nothing.
    free = (
        "view",
        "as_strided",
        "slice",
        "select",
        "empty",
        "permute",
        "t",
        "transpose",
        "unsqueeze",
        "detach",
        "alias",
    )
    events = [event for event in profile.events() if event.name.startswith("aten::") and not event.cpu_parent]
    launches = sum(event.name.removeprefix("aten::") not in free for event in events)
    return statistics.median(times[1:]) / (SAMPLES * epochs), launches // (epochs * math.ceil(SAMPLES / batch))


def operations_per_sample(layout: LeNetLayout) -> float:
    """Floating-point operations of a training step per sample: three products a layer, conv1 without input gradient."""
    channels, height, width = layout.image_shape
    first = 2 * (height - 4) * (width - 4) * MAPS[0] * 25 * channels
    second = 2 * ((height - 4) // 2 - 4) * ((width - 4) // 2 - 4) * MAPS[1] * 25 * MAPS[0]
    dense = sum(2 * outputs * inputs for outputs, inputs in layout.dense_shapes)
    return 2 * first + 3 * second + 3 * dense * (2 if layout.variational else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_settings_arguments(parser)
    parser.add_argument("--processes", type=int, default=2, help="cores that train at the same time")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    plan = Plan(settings_of(arguments))
    rows, total_cpu, total_gpu = [], 0.0, 0.0
    for dataset in plan.settings.grid.datasets:
        for variational in (False, True):
            cells = [
                cell for cell in plan.cells if cell.dataset == dataset and plan.has_posterior(cell.model) is variational
            ]
            if not cells:
                continue
            layout = LeNetLayout(BUILT_IN[dataset].image_shape, BUILT_IN[dataset].labels, variational)
            settings = [CellSettings.of(cell.seed, cell.aggregator, plan.cell_settings(cell)) for cell in cells]
            seconds, launches = seconds_per_sample(layout, settings[0])
            samples = statistics.mean(samples_trained(dataset, each) for each in settings)
            cpu = samples * seconds / arguments.processes
            arithmetic = samples * operations_per_sample(layout) / GPU_FLOPS
            launching = samples / settings[0].training.batch_size * launches * LAUNCH_SECONDS
            gpu = max(arithmetic, launching)
            total_cpu += cpu * len(cells)
            total_gpu += gpu * len(cells)
            network = "variational" if variational else "deterministic"
            rows.append(
                [dataset, network, len(cells), samples / 1e6, 1 / seconds, cpu / 60, arithmetic / 60, launching / 60]
            )
    headers = [
        "data set",
        "network",
        "cells",
        "M samples",
        "samples/s/core",
        "min/cell",
        "GPU FLOP min",
        "GPU kernel min",
    ]
    print(tabulate.tabulate(rows, headers, floatfmt=("", "", "", ".1f", ".0f", ".1f", ".2f", ".1f")))
    print(f"\n{len(plan.cells)} cells: {total_cpu / 86400:.1f} days on {arguments.processes} cores (training alone).")
    print(
        f"On one GPU, one client after the other, bound by {LAUNCH_SECONDS * 1e6:.0f} us a kernel: "
        f"{total_gpu / 86400:.1f} days; processes that share a card take turns on it."
    )


if __name__ == "__main__":
    main()
