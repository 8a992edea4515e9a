"""Train one cell of the grid: one federated experiment with one seed.

By hand:  python workflow/scripts/train.py --cell fmnist/iid/10/FVBWA/AALV/seed0
Data and partition are made when they are missing. A cell that was interrupted goes on from its last checkpoint; one
that is done is left as it is.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
# Sums must not depend on how many threads a library would take.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

from bflp.errors import ConfigError
from bflp.fingerprint import check_cell
from bflp.grid.job import Job
from bflp.runtime.cell import run_cell
from bflp.runtime.device import claimed_device
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cell", help="dataset/partition/clients/model/aggregator/seedN (aggregator none for FED, FEDAVG)"
    )
    parser.add_argument(
        "--configfile",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="config files that are laid over config.yaml, as with snakemake --configfile",
    )
    parser.add_argument("--processes", type=int, help="worker processes (default: the config's, at most the cores)")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], help="default: the config's")
    parser.add_argument("--cells-per-gpu", type=int, help="how many cells may share a GPU (default: the config's)")
    workflow = parser.add_argument_group("what the workflow gives instead of --cell and --configfile")
    workflow.add_argument("--job", help="the cell with its settings and fingerprint, as JSON")
    workflow.add_argument("--checkpoint", help="when to save, as JSON", default='{"rounds": 1, "seconds": 2}')
    workflow.add_argument("--on-divergence", choices=["stop", "record"], default="stop")
    for name in ("data", "partition", "ood", "result", "model", "checkpoint-folder"):
        workflow.add_argument(f"--{name}", type=Path)
    arguments = parser.parse_args()
    if arguments.job is None:
        if arguments.cell is None:
            parser.error("name a --cell")
        _fill_in_from_config(arguments)
    arguments.cells_per_gpu = arguments.cells_per_gpu or 1
    for name in ("processes", "data", "partition", "result", "model", "checkpoint_folder"):
        if getattr(arguments, name) is None:
            parser.error(f"with --job, --{name.replace('_', '-')} is needed, too")
    with claimed_device(arguments.device or "auto", arguments.cells_per_gpu) as device:
        job = Job.parse(arguments.job, arguments.data, arguments.partition, device, arguments.ood)
        # After the wait for a device, in which the code may have been changed.
        check = json.loads(arguments.job)
        check_cell(check)
        run_cell(
            job,
            arguments.processes,
            arguments.result,
            arguments.model,
            arguments.checkpoint_folder,
            json.loads(arguments.checkpoint),
            lambda loaded: check_cell(check, loaded),
            arguments.on_divergence,
        )


def _fill_in_from_config(arguments: argparse.Namespace) -> None:
    """Set what the workflow would have given; make data and partition where they are missing."""
    from bflp.cli.common import load_over_default
    from bflp.datasets import prepared as arrays
    from bflp.datasets.download import is_current
    from bflp.grid.plan import Cell, Plan

    plan = Plan(load_over_default(arguments.configfile))
    cell = Cell.parse(arguments.cell)
    if cell not in plan.cells:
        files = ", ".join(map(str, arguments.configfile)) or "config.yaml"
        raise ConfigError(f"the cell {cell} is not in the grid of {files}")
    arguments.job = plan.job(cell)
    arguments.checkpoint = plan.settings.checkpoint.model_dump_json()
    arguments.data, arguments.partition = plan.data_file(cell.dataset), plan.partition_file(cell)
    arguments.result, arguments.model = plan.result_file(cell), plan.model_file(cell)
    arguments.checkpoint_folder = plan.checkpoint_folder(cell)
    arguments.device = arguments.device or plan.settings.device
    arguments.cells_per_gpu = arguments.cells_per_gpu or plan.settings.cells_per_gpu
    if arguments.processes is None:
        arguments.processes = min(plan.settings.processes, os.cpu_count() or 1)
    if arguments.processes < 1:
        raise ConfigError("--processes must be at least 1")
    arguments.ood, arguments.on_divergence = plan.ood_file(), plan.settings.on_divergence
    for dataset in dict.fromkeys([cell.dataset, plan.settings.evaluation.out_of_distribution]):
        if dataset is None:
            continue
        file, source = plan.data_file(dataset), plan.settings.source(dataset)
        whole = file.exists() and arrays.summary_file(file).exists()
        if not whole or (source is not None and not is_current(Path(source), file)):
            _script("prepare.py", dataset, "--settings", plan.settings.canonical())
    if not arguments.partition.exists():
        job = plan.partition_job(cell.dataset, cell.partition, cell.clients, cell.seed)
        _script("partition.py", "--job", job, "--data", arguments.data, "--output", arguments.partition)
    if _is_done(arguments, arrays.read_summary(arguments.data)["sha256"]):
        print(f"{cell}: is done, see {arguments.result}; delete that to train it again", file=sys.stderr)
        sys.exit(0)


def _is_done(arguments: argparse.Namespace, data_hash: str) -> bool:
    """Whether there is a result, with its model, of these settings, this code and these data."""
    job = json.loads(arguments.job)
    wanted = (job["settings"], job["fingerprint"], data_hash)
    try:
        result = json.loads(arguments.result.read_text(encoding="utf-8"))
        return arguments.model.exists() and wanted == (
            result["settings"],
            result["fingerprint"],
            result["data"]["dataset"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _script(name: str, *arguments: str | Path) -> None:
    done = subprocess.run([sys.executable, ROOT / "workflow/scripts" / name, *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    run_script(main)
