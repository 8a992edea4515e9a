"""Measure the time of local training in a round, for one row of the runtime table."""

import argparse
import json
import os
from pathlib import Path

from bflp.files import write_text
from bflp.grid.job import Job
from bflp.runtime.device import claimed_device
from bflp.runtime.inputs import Assignment
from bflp.runtime.round_time import measure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", required=True, help="the cell with its settings and fingerprint, as JSON")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--processes", type=int, required=True, help="worker processes")
    parser.add_argument("--rounds", type=int, required=True, help="rounds to measure, after one to warm up")
    for name in ("data", "partition", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)


def run(arguments: argparse.Namespace) -> None:
    job = Job.parse(arguments.job)
    with claimed_device(arguments.device) as (device, _):
        assignment = Assignment(job, arguments.data, arguments.partition, device)
        times = measure(assignment, arguments.processes, arguments.rounds)
    machine = {"processes": arguments.processes, "cores": os.cpu_count(), "device": device}
    write_text(arguments.output, json.dumps({"cell": job.cell.as_dict(), **machine, **times}, indent=1) + "\n")
