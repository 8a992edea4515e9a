"""Measure the time of local training in a round, for one row of the runtime table.

Wall clock, as in the paper, whose measurement leaves aggregation out; that is measured beside it.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from bflp.engine.errors import DivergedError
from bflp.engine.round import Federation
from bflp.errors import ConfigError, UserError
from bflp.files import write_text
from bflp.grid.job import Job
from bflp.networks import NetworkError
from bflp.runtime.cell import in_words
from bflp.runtime.cores import available
from bflp.runtime.device import claimed_device
from bflp.runtime.inputs import Assignment
from bflp.runtime.pool import executor
from bflp.runtime.rule import checked_rule


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
        try:
            times = measure(assignment, arguments.processes, arguments.rounds)
        except NetworkError as error:
            raise ConfigError(str(error)) from None
        except DivergedError as error:
            raise UserError(in_words(error, job.settings)) from None
    machine = {"processes": arguments.processes, "cores": available(), "device": device}
    write_text(arguments.output, json.dumps({"cell": job.cell.as_dict(), **machine, **times}, indent=1) + "\n")


def measure(assignment: Assignment, processes: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of local training and of aggregation in each of `rounds` rounds, after one round to warm up."""
    work = assignment.work()
    # Nothing is evaluated: the last round is never reached.
    work.settings = replace(work.settings, every=rounds + 2, rounds=rounds + 2)
    federation = Federation(work, 1, checked_rule(assignment))
    server, seconds = federation.initial(), []
    with executor(assignment, work, processes) as pool:
        for round_ in range(1, rounds + 2):
            outcome = federation.round(server, round_, pool)
            server = outcome.server
            seconds.append(outcome.seconds)
    train, aggregation, _ = map(list, zip(*seconds[1:], strict=True))
    return {"train_seconds": train, "aggregation_seconds": aggregation}
