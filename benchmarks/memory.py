"""Peak memory of a training job: does it grow with the federation, or over many rounds?

    python benchmarks/memory.py

Runs cells on Fashion-MNIST's shape with two processes, ten active clients a round, and sums the proportional set size
(shared pages counted once) over the job's processes, several times a second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import tabulate
import yaml

ROOT = Path(__file__).resolve().parents[1]
IMAGES, ACTIVE = 60000, 10
# (clients, rounds): the federation grows a hundredfold; then many rounds.
RUNS = ((100, 5), (10000, 5), (10000, 500))


def peak_memory() -> list[list[float | None]]:
    """Rows: clients, active clients, rounds, peak MB, growth MB from the second to the last quarter of a long run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generator = np.random.default_rng(0)
        np.savez(
            folder / "random.npz",
            train_images=generator.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8),
            train_labels=np.arange(IMAGES) % 10,
            test_images=generator.integers(0, 256, (10000, 28, 28), dtype=np.uint8),
            test_labels=np.arange(10000) % 10,
        )
        rows: list[list[float | None]] = []
        for clients, rounds in RUNS:
            peak, growth = _run(folder, clients, rounds)
            # A short run still starts in its second quarter.
            rows.append([clients, ACTIVE, rounds, peak, growth if rounds == max(r for _, r in RUNS) else None])
        return rows


def _run(folder: Path, clients: int, rounds: int) -> tuple[float, float]:
    config = {
        "grid": {
            "datasets": ["random"],
            "partitions": ["iid"],
            "clients": [clients],
            "models": ["FVBWA"],
            "aggregators": ["EAA"],
            "seeds": [0],
        },
        "datasets": {"random": {"source": str(folder / "random.npz")}},
        "partitions": {"iid": {"strategy": "iid"}},
        "setups": {clients: {"fraction": ACTIVE / clients, "rounds": rounds}},
        "evaluation": {"every": max(1, rounds // 5)},
        "device": "cpu",
        "results_dir": str(folder / f"results{clients}-{rounds}"),
        "data_dir": str(folder / "data"),
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [sys.executable, str(ROOT / "workflow/scripts/train.py"), "--configfile", str(file), "--processes", "2"]
    command += ["--cell", f"random/iid/{clients}/FVBWA/EAA/seed0"]
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
    print(tabulate.tabulate(peak_memory(), ["clients", "active", "rounds", "peak MB", "growth MB"], floatfmt=".0f"))
