"""Train one cell of the grid: one federated experiment with one seed.

By hand:  bflp train --cell fmnist/iid/10/FVBWA/AALV/seed0
Data and partition are made when they are missing. A cell that was interrupted goes on from its last checkpoint; one
that is done is left as it is.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from bflp.cli.arguments import CELL, add_settings_arguments
from bflp.datasets import prepared
from bflp.errors import ConfigError, DataError, UserError
from bflp.grid.coverage import check_code
from bflp.grid.job import Job
from bflp.grid.paths import Paths
from bflp.runtime.cores import available
from bflp.runtime.options import CellFiles, Options
from bflp.runtime.train import train

NEEDED = ("evaluation", "processes", "data", "partition", "results")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--cell", metavar=CELL, help="aggregator: none where the method has no rule")
    chosen.add_argument("--job", help="from the workflow: the cell with its settings and fingerprint, as JSON")
    add_settings_arguments(parser)
    parser.add_argument("--processes", type=int, help="worker processes (default: the config's, at most the cores)")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], help="default: the config's")
    parser.add_argument("--cells-per-gpu", type=int, help="how many cells may share a GPU (default: the config's)")
    workflow = parser.add_argument_group("what goes with --job")
    workflow.add_argument("--evaluation", help="settings and code of the final model's evaluation, as JSON")
    workflow.add_argument("--checkpoint-seconds", type=float, default=2.0, help="least time between two checkpoints")
    workflow.add_argument("--on-divergence", choices=["stop", "record"], default="stop")
    workflow.add_argument("--keep-clients", action="store_true", help="keep the models of the last round's clients")
    workflow.add_argument("--results", type=Path, help="the folder of results")
    workflow.add_argument("--prepared", help="what the data must have been prepared from, and by what code, as JSON")
    for name in ("data", "partition"):
        workflow.add_argument(f"--{name}", type=Path)


def run(arguments: argparse.Namespace) -> None:
    for name in ("processes", "cells_per_gpu"):
        given = getattr(arguments, name)
        if given is not None and given < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1")
    if arguments.job is None and not _to_be_trained(arguments):
        return
    missing = [name for name in NEEDED if getattr(arguments, name) is None]
    if missing:
        raise ConfigError(f"with --job, --{missing[0]} is needed, too")
    job, paths = Job.parse(arguments.job), Paths(arguments.results, Path())
    try:
        evaluation = json.loads(arguments.evaluation)
        ood = evaluation["ood_file"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"malformed --evaluation: {error}") from None
    check_code(job)
    if arguments.prepared is not None:
        _refuse_outdated(arguments.data, arguments.prepared)
    files = CellFiles(
        arguments.data,
        arguments.partition,
        *(paths.result(job.cell), paths.model(job.cell), paths.evaluation(job.cell), paths.progress(job.cell)),
        kept=paths.kept,
        ood=Path(ood) if ood else None,
        clients=paths.clients(job.cell) if arguments.keep_clients else None,
    )
    options = Options(
        evaluation,
        arguments.processes,
        arguments.device or "auto",
        arguments.cells_per_gpu or 1,
        arguments.checkpoint_seconds,
        arguments.on_divergence,
        os.environ.get("BFLP_RUN", ""),
    )
    train(job, files, options)


def _refuse_outdated(data: Path, job: str) -> None:
    """Raise DataError where the data are known to be of something else than `job`, from `Plan.prepare_job`."""
    try:
        record = json.loads(Paths(Path(), data.parent).made(data.stem).read_text(encoding="utf-8"))
        fits = record["job"] == json.loads(job)
    except (OSError, ValueError, KeyError, TypeError):
        return
    if not fits:
        raise DataError(
            f"{data} was prepared from something else, or by other code, than now, and Snakemake has no record of it: "
            "run snakemake again with --forcerun prepare"
        )


def _to_be_trained(arguments: argparse.Namespace) -> bool:
    """Set what the workflow would have given, and make the cell's inputs; False where the cell is done."""
    # Only here: a cell of the workflow starts sooner without these.
    from bflp.cli import partition, prepare
    from bflp.cli.common import cell_from, check_shapes, plan_from
    from bflp.partition.files import is_of
    from bflp.provenance.state import data_hashes, state

    plan = plan_from(arguments)
    cell, settings, paths = cell_from(arguments, plan), plan.settings, plan.paths
    arguments.job, arguments.evaluation, arguments.results = plan.job(cell), plan.evaluation_text(cell), plan.results
    arguments.checkpoint_seconds, arguments.on_divergence = settings.checkpoint_seconds, settings.on_divergence
    arguments.keep_clients = settings.keep_clients
    arguments.data, arguments.partition = paths.data(cell.dataset), plan.partition_file(cell)
    arguments.device = arguments.device or settings.device
    arguments.cells_per_gpu = arguments.cells_per_gpu or settings.cells_per_gpu
    arguments.processes = arguments.processes or min(settings.processes, available())
    datasets = list(filter(None, [cell.dataset, settings.out_of_distribution(cell.dataset)]))
    for dataset in datasets:
        prepare.prepare_if_needed(plan, dataset)
    check_shapes(settings, {name: prepared.read_summary(paths.data(name))["input_shape"] for name in datasets})
    split, data_hash = plan.partition_job_of(cell), prepared.read_summary(arguments.data)["sha256"]
    if not is_of(arguments.partition, json.loads(split), data_hash):
        partition.make(split, arguments.data, arguments.partition)
    files = [paths.model(cell), *([paths.clients(cell)] if settings.keep_clients else [])]
    done = state(plan, cell, data_hashes(plan)).is_right and all(file.exists() for file in files)
    if done:
        print(f"{cell}: is done, see {paths.result(cell)}; delete that to train it again", file=sys.stderr)
    return not done
