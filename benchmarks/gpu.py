"""The ways to train a round's clients, beside one another on one card: what gpu_check.sh measures.

    python benchmarks/gpu.py [--tiny]

Seconds per round and cell, of one process: clients one by one, each with a recording of its own (as without
`training.stack`); one by one with a recording that serves the whole cell (`stack: 1`); all ten at once (`stack: 10`);
and the plain loop, one epoch of which is multiplied, without augmentation. Then LeNet's products, ten or one batched,
and where a step's time goes. Without a GPU the same on the CPU; --tiny: few images, to see that it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tabulate

os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import yaml
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import plain_loop
from benchmarks.rounds import Rounds
from bflp.engine.cuda_graph import Replay
from bflp.grid.plan import Plan
from bflp.networks.lenet import LeNetLayout
from bflp.networks.posterior import Posterior
from bflp.settings.schema import Settings
from tests.oracles.plain import LeNet

ROOT = Path(__file__).resolve().parents[1]
WAYS = {"one by one": None, "recorded once": 1, "stack of ten": 10}
# Rows and columns of the first factor, columns of the second, of CIFAR-10's images in batches of 64: both convolutions
# and the first two dense layers.
PRODUCTS = ((24, 108, 12544), (64, 216, 1600), (120, 400, 64), (84, 120, 64))


def plan(dataset: str, clients: int, model: str, stack: int | None) -> Plan:
    """One cell of the paper's grid, with a stack."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    config["grid"] = {"datasets": [dataset], "partitions": ["iid"], "clients": [clients], "models": [model]}
    config["grid"] |= {"aggregators": ["EAA"], "seeds": [0]}
    return Plan(Settings.parse({**config, "training": {**config["training"], "stack": stack}}))


def synchronised(function: Callable[[], object]) -> float:
    """Seconds until the device has done it."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    began = time.perf_counter()
    function()
    wait()
    return time.perf_counter() - began


def plain_seconds(rounds: Rounds, device: str) -> float:
    """Seconds of the round's training by the plain loop, in this process: one epoch, multiplied."""
    layout, data, settings = rounds.work.layout, rounds.inputs, rounds.settings
    assert isinstance(layout, LeNetLayout)
    images = torch.from_numpy(data.train_inputs).float().div_(255)
    training = {"local_epochs": 1, "batch_size": settings.training.batch_size}
    training |= {key: getattr(settings.training, key) for key in ("learning_rate", "momentum", "weight_decay")}
    plain_loop._start(LeNet(layout, Posterior()), layout, images, torch.from_numpy(data.train_labels), training, device)
    clients = [torch.from_numpy(data.indices[data.offsets[k] : data.offsets[k + 1]]) for k in range(settings.active)]
    vector = rounds.work.initial
    plain_loop._train((vector, clients[0][:64]))
    return settings.training.local_epochs * synchronised(
        lambda: [plain_loop._train((vector, indices)) for indices in clients]
    )


def compare_rounds(device: str, per_client: int | None) -> None:
    rows: list[list[object]] = []
    for dataset in ("fmnist", "cifar10"):
        for clients in (10, 100):
            for model in ("FEDAVG", "FVBWA"):
                for way, stack in WAYS.items():
                    chosen = plan(dataset, clients, model, stack)
                    rounds = Rounds(chosen, chosen.cells[0], device, per_client)
                    rounds.run()  # Also records and loads.
                    training, *other = rounds.run()
                    minutes = rounds.settings.rounds * (training + sum(other)) / 60
                    rows.append([dataset, clients, model, way, rounds.steps, training, sum(other), minutes])
                    print(*rows[-1], file=sys.stderr, flush=True)
                rows.append([dataset, clients, model, "plain loop", None, plain_seconds(rounds, device)])
    headers = ["data set", "clients", "model", "way", "steps", "train s", "other s", "min/cell"]
    print(tabulate.tabulate(rows, headers, floatfmt=("",) * 5 + (".3f", ".3f", ".2f")))


def compare_products(device: str, clients: int = 10, calls: int = 50) -> None:
    rows = []
    for m, k, n in PRODUCTS:
        first, second = torch.randn(clients, m, k, device=device), torch.randn(clients, k, n, device=device)
        out = torch.empty(clients, m, n, device=device)

        def separate(first: Any = first, second: Any = second, out: Any = out) -> None:
            for client in range(clients):
                torch.mm(first[client], second[client], out=out[client])

        def batched(first: Any = first, second: Any = second, out: Any = out) -> None:
            torch.bmm(first, second, out=out)

        results, times = [], []
        for function in (separate, batched):
            run: Callable[[], None] = function if device == "cpu" else Replay().once(function)
            run()
            times.append(1e6 * synchronised(lambda run=run: [run() for _ in range(calls)]) / calls)  # type: ignore[misc]
            results.append(out.clone())
        rows.append([f"{m}x{k} {k}x{n}", *times, times[0] / times[1], torch.equal(*results)])
    headers = [f"product, {clients} times", "mm us", "bmm us", "ratio", "same bits"]
    print(tabulate.tabulate(rows, headers, floatfmt=("", ".1f", ".1f", ".2f")))


def print_profiles(device: str, per_client: int) -> None:
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device != "cpu")
    for way, stack in WAYS.items():
        chosen = plan("fmnist", 10, "FVBWA", stack)
        rounds = Rounds(chosen, chosen.cells[0], device, per_client)
        rounds.train()
        with profile(activities=activities) as record:
            rounds.train()
        print(f"\n{way}: {rounds.steps} steps, fmnist, FVBWA")
        order = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
        print(record.key_averages().table(order, row_limit=15, max_name_column_width=60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="few images, to see that it runs")
    tiny = parser.parse_args().tiny
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}, torch {torch.__version__}, one process\n")
    compare_products(device, calls=2 if tiny else 50)
    print()
    compare_rounds(device, 20 if tiny else None)
    print_profiles(device, 20 if tiny else 640)


if __name__ == "__main__":
    main()
