"""Round, aggregation and evaluation time of the client engine beside a plain loop doing the same work.

    python benchmarks/bench.py [--processes 1 2] [--repeats 5] [--device cpu]

The 100-client set-up on Fashion-MNIST's shape: a round trains 10 clients with 600 images each for 10 epochs, batch 64.
Ours and the plain loop alternate within one run, so that a busy machine slows both; ratios are of the medians.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tabulate
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.memory import peak_memory
from benchmarks.plain_loop import PlainLoop
from bflp.aggregators import built_in
from bflp.datasets import prepared as arrays
from bflp.engine.server import Aggregator
from bflp.files import canonical_json
from bflp.grid.job import Job
from bflp.networks.layout import Layout
from bflp.partition import files
from bflp.rng import torch_generator
from bflp.runtime import pool
from bflp.runtime.worker import chunks

IMAGES, TEST_IMAGES, SHAPE, CLIENTS, ACTIVE = 60000, 10000, (1, 28, 28), 100, 10
TRAINING = {"local_epochs": 10, "batch_size": 64, "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 1e-5}
POSTERIOR = {
    "prior": {"mean": 0.0, "standard_deviation": 1.0},
    "log_variance": {"initial": -9.0, "bounds": [-8.0, 8.0], "enforce": "clamp"},
    "ppa_population": 1000,
}


def make_inputs(folder: Path) -> tuple[Path, Path]:
    """A prepared data set of random images and an iid partition of it."""
    generator = np.random.default_rng(0)
    train = generator.integers(0, 256, (IMAGES, *SHAPE), dtype=np.uint8)
    test = generator.integers(0, 256, (TEST_IMAGES, *SHAPE), dtype=np.uint8)
    dataset = arrays.Dataset(train, np.arange(IMAGES) % 10, test, np.arange(TEST_IMAGES) % 10)
    arrays.save(dataset, folder / "random.npz")
    job = {"dataset": "random", "name": "iid", "clients": CLIENTS, "seed": 0, "settings": {"strategy": "iid"}}
    files.save(files.make(dataset.train_labels, job, ""), dataset.train_labels, folder / "iid.npz")
    return folder / "random.npz", folder / "iid.npz"


def make_job(model: str, aggregator: str, data: Path, partition: Path, device: str) -> Job:
    """A cell's job as the workflow would make it."""
    cell = {"dataset": "random", "partition": "iid", "clients": CLIENTS, "model": model, "aggregator": aggregator}
    settings = {"augment": None, "training": TRAINING, "evaluation": {"ece_bins": 100, "monte_carlo_samples": 10}}
    if model == "FVBA":
        settings["posterior"] = POSTERIOR
    text = canonical_json({"cell": {**cell, "seed": 0}, "settings": settings, "fingerprint": ""})
    return Job.parse(text, data, partition, device)


def interleaved(functions: list[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds of each function; they take turns, after one untimed turn each."""
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(repeats + 1):
        for function, results in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            if turn:
                results.append(time.perf_counter() - start)
    return [statistics.median(results) for results in times]


def bench_rounds(model: str, processes: int, data: Path, partition: Path, repeats: int, device: str) -> list[object]:
    """model, processes, seconds of the plain loop and of ours, ratio, samples per second and process, and so on."""
    opened, parts = arrays.open_prepared(data), files.load(partition)
    images = torch.from_numpy(np.array(opened.train_images)).float().div_(255)
    labels = torch.from_numpy(opened.train_labels)
    layout = Layout(SHAPE, 10, model == "FVBA")
    vector = layout.initial_vector(-9.0, torch_generator(0, "initial model"))
    clients = [torch.from_numpy(parts.client(client)) for client in range(ACTIVE)]
    tasks = [("train", 1, client, 600.0) for client in range(ACTIVE)]
    evaluation = [("evaluate", 1, chunk, 0.0) for chunk in chunks(TEST_IMAGES)]
    plain = PlainLoop(layout, images, labels, TRAINING, processes, device)
    job = make_job(model, "EAA" if model == "FVBA" else "none", data, partition, device)
    start = time.perf_counter()
    with pool.pool(job, processes) as ours:
        startup = time.perf_counter() - start
        both = [lambda: plain.round(vector, clients), lambda: ours.run(vector, tasks)]
        plain_time, our_time = interleaved(both, repeats)
        (evaluation_time,) = interleaved([lambda: ours.run(vector, evaluation)], repeats)
        # Before our pool ends, which ends all child processes of this one.
        plain.close()
    samples = ACTIVE * 600 * TRAINING["local_epochs"] / our_time / processes
    return [model, processes, plain_time, our_time, our_time / plain_time, samples, evaluation_time, startup]


def bench_aggregation(rule: str, data: Path, partition: Path, repeats: int) -> list[object]:
    """rule, milliseconds of an aggregation of ten clients."""
    model = "FED" if rule == "none" else "FVBA"
    layout = Layout(SHAPE, 10, model == "FVBA")
    aggregator = Aggregator(make_job(model, rule, data, partition, "cpu"), layout)
    vector = layout.initial_vector(-7.0, torch_generator(0, "initial model")).numpy()
    vectors = vector + np.random.default_rng(0).normal(0, 0.01, (ACTIVE, layout.size)).astype(np.float32)
    (seconds,) = interleaved([lambda: aggregator.combine(vectors, np.full(ACTIVE, 600), 1)], repeats)
    return [rule, 1000 * seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="cpu or cuda, of both loops")
    parser.add_argument("--no-memory", action="store_true", help="leave out the memory runs (about two minutes)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data, partition = make_inputs(Path(folder))
        rows = []
        for processes in arguments.processes:
            for model in ("FED", "FVBA"):
                rows.append(bench_rounds(model, processes, data, partition, arguments.repeats, arguments.device))
                print(*rows[-1], file=sys.stderr, flush=True)
        rules = ["none", *built_in()]
        aggregation = [bench_aggregation(rule, data, partition, max(arguments.repeats, 5)) for rule in rules]
    print(f"{platform.system()} {platform.machine()}, one thread per process, torch {torch.__version__}")
    headers = ["model", "processes", "plain s", "ours s", "ratio", "samples/s/process", "evaluation s", "start-up s"]
    print(tabulate.tabulate(rows, headers, floatfmt=("", "", ".2f", ".2f", ".2f", ".0f", ".3f", ".2f")))
    print("\nAggregation of ten clients")
    print(tabulate.tabulate(aggregation, ["rule", "ms"], floatfmt=".1f"))
    if not arguments.no_memory:
        print("\nPeak memory of a job with two processes (PSS summed over its processes)")
        print(tabulate.tabulate(peak_memory(), ["clients", "active", "rounds", "peak MB", "growth MB"], floatfmt=".0f"))


if __name__ == "__main__":
    main()
