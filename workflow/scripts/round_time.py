"""Measure the local training time of communication rounds for one row of the runtime table."""

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

from bflp.files import write_text
from bflp.grid.job import Job
from bflp.runtime.device import claimed_device
from bflp.runtime.round_time import measure
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True, help="the cell with its settings and fingerprint, as JSON")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--processes", type=int, required=True, help="worker processes")
    parser.add_argument("--rounds", type=int, required=True, help="rounds to measure, after one to warm up")
    for name in ("data", "partition", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    with claimed_device(arguments.device) as device:
        job = Job.parse(arguments.job, arguments.data, arguments.partition, device)
        times = measure(job, arguments.processes, arguments.rounds)
    result = {
        "cell": job.cell,
        "processes": arguments.processes,
        "cores": os.cpu_count(),
        "device": job.device,
        **times,
    }
    write_text(arguments.output, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
