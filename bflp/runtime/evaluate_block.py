"""Evaluating trained models without training, for a block of cells at once.

Apart from `evaluate`, which each training job needs: what is imported here takes a cell's start longer.
"""

from __future__ import annotations

import hashlib
import sys

from bflp.engine.round import Federation
from bflp.errors import DataError
from bflp.files import canonical_json, write_text
from bflp.grid.job import Job
from bflp.grid.plan import Block, Plan
from bflp.provenance.state import CellState, describe_stale, states
from bflp.results.file import read_evaluation, write
from bflp.runtime.clients import load_clients
from bflp.runtime.device import claimed_device
from bflp.runtime.evaluate import evaluate, load_model, model_hash, needs_clients
from bflp.runtime.inputs import Assignment
from bflp.runtime.pool import SerialExecutor


def evaluate_block(plan: Plan, block: Block) -> int:
    """Evaluate the cells of a block whose evaluation is missing or of something else; return how many.

    Then write the block's index: a digest of each evaluation. Raises DataError where a cell's result cannot be used.
    """
    found = states(plan, plan.block(*block))
    wrong = [item for item in found if item.result is None]
    if wrong:
        raise DataError(wrong[0].reason or f"there is no result of {wrong[0].cell}")
    stale = [item for item in found if item.kind == "stale"]
    if stale:
        raise DataError(describe_stale(stale))
    to_do = [item for item in found if item.evaluation is None]
    if to_do:
        with claimed_device(plan.settings.device, plan.settings.cells_per_gpu) as (device, why):
            print(
                f"{'/'.join(block)}: {len(to_do)} of {len(found)} cells to evaluate on {device} ({why})",
                file=sys.stderr,
            )
            for item in to_do:
                _evaluate_cell(plan, item, device)
    digests = {str(item.cell): _digest(plan, item) for item in found}
    write_text(plan.paths.evaluated(*block), canonical_json(digests) + "\n")
    return len(to_do)


def _evaluate_cell(plan: Plan, item: CellState, device: str) -> None:
    cell, result = item.cell, item.result
    assert result is not None
    ood = plan.settings.out_of_distribution(cell.dataset)
    ood_file = plan.paths.data(ood) if ood else None
    job = Job.parse(plan.job(cell))
    assignment = Assignment(job, plan.paths.data(cell.dataset), plan.partition_file(cell), device, ood_file)
    work = assignment.work()
    bins = plan.settings.evaluation.ece_bins
    federation = Federation(work, bins)
    model = load_model(plan.paths.model(cell), work.layout)
    if model_hash(model) != result.model_sha256:
        raise DataError(f"{plan.paths.model(cell)} is not the model of the cell's result: delete both")
    diverged, wanted = result.diverged is not None, plan.evaluation_of(cell)
    kept_in = plan.paths.evaluation(cell).with_suffix(".npz")
    clients = None
    if needs_clients(wanted) and not diverged:
        clients = load_clients(plan.paths.clients(cell), len(model), result.environment.clients_file)
    evaluation = evaluate(assignment, federation, SerialExecutor(work), model, diverged, wanted, kept_in, clients)
    if evaluation is None:
        raise DataError(f"there is no {ood_file}: prepare the data set first (snakemake --cores 1 prepare_all)")
    write(plan.paths.evaluation(cell), evaluation)


def _digest(plan: Plan, item: CellState) -> str:
    assert item.result is not None
    evaluation = item.evaluation or read_evaluation(plan.paths.evaluation(item.cell), item.cell)
    content = [item.result.model_dump(exclude={"environment"}), evaluation.model_dump(exclude={"environment"})]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]
