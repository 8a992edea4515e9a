"""Round, aggregation and evaluation time of the client engine beside a plain loop doing the same work.

    python benchmarks/bench.py [--processes 1 2] [--repeats 5] [--device cpu] [--network resnet20]

The 100-client set-up on Fashion-MNIST's shape: a round trains 10 clients with 600 images each for 10 epochs, batch 64.
Other networks than LeNet go the general path; the large ones on CIFAR-10's shape, 128 images and one epoch.
Ours and the plain loop alternate within one run, so that a busy machine slows both; ratios are of the medians. The
second ratio is of the CPU seconds of the processes that train, which do not count waiting for a core.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tabulate
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.memory import HEADERS, peak_memory
from benchmarks.plain_loop import PlainLoop
from bflp.aggregators import names
from bflp.datasets import prepared as arrays
from bflp.engine.server import Aggregator
from bflp.engine.work import Broadcast, Train, evaluation_tasks
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.networks.lenet import LeNetLayout
from bflp.networks.posterior import Posterior
from bflp.partition import files
from bflp.rng import torch_generator
from bflp.runtime import pool
from bflp.runtime.inputs import Assignment
from bflp.runtime.rule import checked_rule
from bflp.settings.schema import Settings
from tests.oracles import plain as oracle
from tests.oracles.plain import LeNet

CLIENTS, ACTIVE = 100, 10
# network: shape of an image, images per client, local epochs, test images
CASES = {
    "lenet": ((1, 28, 28), 600, 10, 10000),
    "lenet-module": ((1, 28, 28), 600, 10, 10000),
    "mlp": ((1, 28, 28), 600, 10, 10000),
    "cnn": ((3, 32, 32), 128, 1, 1000),
    "resnet20": ((3, 32, 32), 128, 1, 1000),
}
# LeNet as a plain module, on the general path as all networks but "lenet".
OWN = {"lenet-module": {"file": oracle.__file__}}
TRAINING = {"batch_size": 64, "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 1e-5}
SAMPLES = 10  # Monte Carlo samples


def make_inputs(folder: Path, network: str) -> tuple[Path, Path]:
    """A prepared data set of random images and an iid partition of it."""
    generator = np.random.default_rng(0)
    shape, per_client, _, test_images = CASES[network]
    images = CLIENTS * per_client
    train = generator.integers(0, 256, (images, *shape), dtype=np.uint8)
    test = generator.integers(0, 256, (test_images, *shape), dtype=np.uint8)
    dataset = arrays.Dataset(train, np.arange(images) % 10, test, np.arange(test_images) % 10)
    arrays.save(dataset, folder / "random.npz")
    job = {"dataset": "random", "name": "iid", "clients": CLIENTS, "seed": 0, "settings": {"strategy": "iid"}}
    files.save(files.make(dataset.train_labels, job, ""), dataset.train_labels, folder / "iid.npz")
    return folder / "random.npz", folder / "iid.npz"


def training(network: str) -> dict[str, Any]:
    return {**TRAINING, "local_epochs": CASES[network][2]}


def assignment(
    model: str, rule: str | None, data: Path, partition: Path, device: str, network: str = "lenet"
) -> Assignment:
    """A cell's work as the workflow would give it. rule: an aggregator, or None."""
    grid = {"datasets": ["random"], "partitions": ["iid"], "clients": [CLIENTS], "models": [model], "seeds": [0]}
    sections = {
        "grid": {**grid, "aggregators": [rule] if rule else []},
        "datasets": {"random": {"source": str(data)}},
        "partitions": {"iid": {"strategy": "iid"}},
        "setups": {CLIENTS: {"fraction": ACTIVE / CLIENTS, "rounds": 1}},
        "network": OWN.get(network, network),
        "training": training(network),
        "evaluation": {"monte_carlo_samples": SAMPLES},
    }
    plan = Plan(Settings.parse(sections))
    return Assignment(Job.parse(plan.job(plan.cells[0])), data, partition, device)


def interleaved(functions: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds of each function; they take turns, after one untimed turn each."""
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(repeats + 1):
        for function, results in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            if turn:
                results.append(time.perf_counter() - start)
    return [statistics.median(results) for results in times]


def cpu_seconds(processes: Sequence[int]) -> float:
    """What processes have used so far, in the kernel, too."""
    times = [psutil.Process(pid).cpu_times() for pid in processes]
    return sum(each.user + each.system for each in times)


def bench_rounds(
    model: str, processes: int, data: Path, partition: Path, repeats: int, device: str, network: str
) -> list[object]:
    """model, processes, seconds of the plain loop and of ours, ratios, samples per second and process, and so on."""
    assigned = assignment(model, "EAA" if model == "FVBA" else None, data, partition, device, network)
    work = assigned.work()
    layout, inputs = work.layout, work.inputs
    theirs = LeNet(layout, Posterior()) if isinstance(layout, LeNetLayout) else work.network.module(work.initial)
    images = torch.from_numpy(np.array(inputs.train_inputs)).float().div_(255)
    labels = torch.from_numpy(inputs.train_labels)
    vector = layout.initial_vector(-9.0, torch_generator(0, "initial model"))
    clients = [torch.from_numpy(np.array(part)) for part in np.split(inputs.indices, inputs.offsets[1:-1])[:ACTIVE]]
    tasks = [Train(1, client) for client in range(ACTIVE)]
    _, per_client, epochs, test_images = CASES[network]
    evaluation = evaluation_tasks(test_images, 1, SAMPLES)
    plain = PlainLoop(theirs, layout, images, labels, training(network), processes, device)
    start = time.perf_counter()
    with pool.executor(assigned, work, processes) as ours:
        startup = time.perf_counter() - start
        both = [lambda: plain.round(vector, clients), lambda: ours.run(Broadcast(vector), tasks)]
        pids = [plain.workers, [each.pid for each in getattr(ours, "processes", [multiprocessing.current_process()])]]
        used: list[list[float]] = [[], []]

        def counted(which: int) -> None:
            before = cpu_seconds(pids[which])
            both[which]()
            used[which].append(cpu_seconds(pids[which]) - before)

        plain_time, our_time = interleaved([partial(counted, 0), partial(counted, 1)], repeats)
        plain_cpu, our_cpu = (statistics.median(each[1:]) for each in used)
        (evaluation_time,) = interleaved([lambda: ours.run(Broadcast(vector), evaluation)], repeats)
        # Before our pool ends, which ends all child processes of this one.
        plain.close()
    samples = ACTIVE * per_client * epochs / our_time / processes
    ratios = [our_time / plain_time, our_cpu / plain_cpu]
    return [model, processes, plain_time, our_time, *ratios, samples, evaluation_time, startup]


def bench_aggregation(rule: str | None, data: Path, partition: Path, repeats: int) -> list[object]:
    """rule, milliseconds of an aggregation of ten clients."""
    assigned = assignment("FVBA" if rule else "FED", rule, data, partition, "cpu")
    layout = assigned.layout(arrays.open_prepared(data))
    aggregator = Aggregator(assigned.settings(), layout, checked_rule(assigned))
    vector = layout.initial_vector(-7.0, torch_generator(0, "initial model"))
    changes = np.random.default_rng(0).normal(0, 0.01, (ACTIVE, layout.size)).astype(np.float32)
    vectors, sizes = vector.numpy() + changes, np.full(ACTIVE, CASES["lenet"][1])
    (seconds,) = interleaved([lambda: aggregator.combine(vectors, sizes, 1, vector)], repeats)
    return [rule or "none", 1000 * seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="cpu or cuda, of both loops")
    parser.add_argument("--network", default="lenet", choices=CASES, help="others than LeNet: rounds of FED only")
    parser.add_argument("--no-memory", action="store_true", help="leave out the memory runs (about two minutes)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        network = arguments.network
        data, partition = make_inputs(Path(folder), network)
        rows = []
        for processes in arguments.processes:
            for model in ("FED", "FVBA") if network == "lenet" else ("FED",):
                further = (arguments.repeats, arguments.device, network)
                rows.append(bench_rounds(model, processes, data, partition, *further))
                print(*rows[-1], file=sys.stderr, flush=True)
        rules = [None, *names()] if network == "lenet" else []
        aggregation = [bench_aggregation(rule, data, partition, max(arguments.repeats, 5)) for rule in rules]
    print(f"{platform.system()} {platform.machine()}, one thread per process, torch {torch.__version__}")
    headers = ["model", "processes", "plain s", "ours s", "ratio", "CPU ratio"]
    headers += ["samples/s/process", "evaluation s", "start-up s"]
    print(tabulate.tabulate(rows, headers, floatfmt=("", "", *[".2f"] * 4, ".0f", ".3f", ".2f")))
    if network != "lenet":
        return
    print("\nAggregation of ten clients")
    print(tabulate.tabulate(aggregation, ["rule", "ms"], floatfmt=".1f"))
    if not arguments.no_memory:
        print("\nPeak memory of a job with two processes (PSS summed over its processes)")
        print(tabulate.tabulate(peak_memory(), HEADERS, floatfmt=".0f"))


if __name__ == "__main__":
    main()
