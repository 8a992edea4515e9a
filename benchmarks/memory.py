"""Peak memory of a training job: does it grow with the federation, or over many rounds?

    python benchmarks/memory.py

Runs cells on Fashion-MNIST's shape with two processes, ten active clients a round, one on large images, and one of
ResNet-20 on CIFAR-10's shape; sums the proportional set size (shared pages counted once) over the job's processes,
several times a second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import tabulate
import yaml

ROOT = Path(__file__).resolve().parents[1]
SMALL = (60000, 10000, (28, 28))  # training images, test images, their shape
LARGE = (5000, 500, (3, 224, 224))
CIFAR10 = (50000, 1000, (3, 32, 32))
Run = tuple[str, tuple[int, int, tuple[int, ...]], int, int, int, int]
# (network, images, clients, active, local epochs, rounds): the federation grows a hundredfold; then many rounds; then
# images so large that a client's would take gigabytes as floating-point numbers; then a network the general path.
RUNS: dict[str, Run] = {
    "small": ("lenet", SMALL, 100, 10, 10, 5),
    "clients": ("lenet", SMALL, 10000, 10, 10, 5),
    "rounds": ("lenet", SMALL, 10000, 10, 10, 500),
    "large": ("lenet", LARGE, 2, 1, 1, 1),
    "resnet20": ("resnet20", CIFAR10, 10, 10, 1, 1),
}
HEADERS = ["network", "images", "clients", "active", "rounds", "peak MB", "growth MB"]


def peak_memory(runs: Sequence[Run] = tuple(RUNS.values())) -> list[list[object]]:
    """Rows: HEADERS; growth: from the second to the last quarter of a long run."""
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, run in enumerate(runs):
            network, images, clients, active, _, rounds = run
            source = folder / f"{images[0]}.npz"
            if not source.exists():
                _write_images(source, *images)
            peak, growth = _run(folder / str(number), source, network, *run[2:])
            # A short run still starts in its second quarter.
            shape = "x".join(map(str, images[2]))
            rows.append(
                [network, f"{images[0]} of {shape}", clients, active, rounds, peak, growth if rounds > 100 else None]
            )
    return rows


def _write_images(file: Path, train: int, test: int, shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    np.savez(
        file,
        train_images=generator.integers(0, 256, (train, *shape), dtype=np.uint8),
        train_labels=np.arange(train) % 10,
        test_images=generator.integers(0, 256, (test, *shape), dtype=np.uint8),
        test_labels=np.arange(test) % 10,
    )


def _run(
    folder: Path, source: Path, network: str, clients: int, active: int, epochs: int, rounds: int
) -> tuple[float, float]:
    folder.mkdir()
    config = {
        "grid": {
            "datasets": ["random"],
            "partitions": ["iid"],
            "clients": [clients],
            "models": ["FVBWA"],
            "aggregators": ["EAA"],
            "seeds": [0],
        },
        "datasets": {"random": {"source": str(source)}},
        "partitions": {"iid": {"strategy": "iid"}},
        "setups": {clients: {"fraction": active / clients, "rounds": rounds}},
        "network": network,
        "training": {"local_epochs": epochs},
        "evaluation": {"every": max(1, rounds // 5)},
        "device": "cpu",
        "results_dir": str(folder / "results"),
        "data_dir": str(folder / "data"),
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    program = [sys.executable, str(ROOT / "workflow/scripts/run.py")]
    subprocess.run([*program, "prepare", "random", "--configfile", str(file)], check=True, capture_output=True)
    command = [*program, "train", "--configfile", str(file)]
    command += ["--processes", "2", "--cell", f"random/iid/{clients}/FVBWA/EAA/seed0"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    totals = []
    while process.poll() is None:
        totals.append(_proportional_set_size(process.pid) / 1e6)
        time.sleep(0.2)
    if process.returncode:
        sys.exit(f"the run with {clients} clients failed: {json.dumps(command)}")
    settled = totals[len(totals) // 4 : len(totals) // 2]
    late = totals[-len(totals) // 4 : -2]
    return max(totals), float(np.median(late) - np.median(settled))


def _proportional_set_size(pid: int) -> float:
    total = 0.0
    try:
        main = psutil.Process(pid)
        for process in [main, *main.children(recursive=True)]:
            total += process.memory_full_info().pss
    except psutil.Error:
        pass  # a process that ended meanwhile
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=RUNS, help="one of the runs")
    only = parser.parse_args().only
    print(tabulate.tabulate(peak_memory([RUNS[only]] if only else tuple(RUNS.values())), HEADERS, floatfmt=".0f"))
