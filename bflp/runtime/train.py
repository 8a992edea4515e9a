"""The job of one cell: what was kept is put back; else the cell is trained. Imports no torch before it must."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from bflp.datasets import prepared
from bflp.errors import UserError
from bflp.files import remove_leftovers
from bflp.grid.coverage import check_code
from bflp.grid.job import Job
from bflp.runtime import kept, progress, termination
from bflp.runtime.device import claimed_device
from bflp.runtime.errors import HopelessError
from bflp.runtime.lock import only_one
from bflp.runtime.options import CellFiles, Options


def train(job: Job, files: CellFiles, options: Options) -> None:
    """Make the cell's result and model, and where all it needs is there, its evaluation. Raises UserError."""
    identity = job.identity(prepared.read_summary(files.data)["sha256"])
    with only_one(files.progress.with_suffix(".lock"), str(job)):
        # The result last, without which the others are not put back.
        written = {"evaluation": files.evaluation, "model": files.model, "result": files.result}
        if files.clients is not None:
            written = {"clients": files.clients, **written}
        for file in [*written.values(), files.evaluation.with_suffix(".npz"), files.kept / identity]:
            remove_leftovers(file)
        if kept.restore(files.kept, identity, written, job):
            check_code(job)
            print(
                f"{job}: put back what was trained before with these settings, this code and these data",
                file=sys.stderr,
            )
            progress.write(files.progress, state="done", identity=identity)
            return
        _refuse_hopeless(files.progress, identity, options)
        try:
            _train(job, files, options, identity)
        except MemoryError:
            # There may be none left for this either.
            raise
        except (Exception, termination.Terminated) as error:
            state = "interrupted" if isinstance(error, termination.Terminated) else "failed"
            reason = str(error) if isinstance(error, UserError | OSError | termination.Terminated) else repr(error)
            ended = {"state": state, "reason": reason, "hopeless": isinstance(error, HopelessError), "run": options.run}
            progress.write(files.progress, **{**progress.read(files.progress), "identity": identity, **ended})
            raise
        kept.keep(files.kept, identity, {what: file for what, file in written.items() if file.exists()})


def _train(job: Job, files: CellFiles, options: Options, identity: str) -> None:
    with claimed_device(options.device, options.cells_per_gpu) as (device, why):
        shown = f"{device} ({why})"
        print(f"{job}: on {shown}", file=sys.stderr)
        # Not before: importing torch takes longer than putting back what is kept. What modules make stays: looking
        # for garbage in it takes a tenth of the import.
        gc.disable()
        from bflp.runtime import cell
        from bflp.runtime.inputs import Assignment

        gc.freeze()
        gc.enable()
        ood = files.ood if files.ood is not None and prepared.summary_file(files.ood).exists() else None
        states = files.kept / f"{identity.partition('-')[0]}.clients"
        cell.run(Assignment(job, files.data, files.partition, device, ood, states), files, options, identity, shown)


def _refuse_hopeless(file: Path, identity: str, options: Options) -> None:
    last = progress.read(file)
    again = bool(options.run) and (last.get("identity"), last.get("run")) == (identity, options.run)
    if again and last.get("hopeless"):
        raise UserError(f"{last['reason']} (trying again would end in the same way)")
