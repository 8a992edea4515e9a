"""Evaluating final models: by the job that trained them, or later, for a block of cells at once, without training."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file
from torch import Tensor

from bflp.engine.evaluation import evaluate as evaluate_model
from bflp.engine.round import Executor, Federation
from bflp.errors import DataError, UserError
from bflp.files import canonical_json, whole_file, write_text
from bflp.grid.job import Job
from bflp.grid.plan import Block, Plan
from bflp.networks.layout import Layout
from bflp.provenance.state import CellState, states
from bflp.results.evaluation import Evaluation, EvaluationData, EvaluationEnvironment, Reliability
from bflp.results.file import read_evaluation, write
from bflp.results.result import CellNames
from bflp.runtime import inputs
from bflp.runtime.device import claimed_device
from bflp.runtime.inputs import Assignment
from bflp.runtime.pool import SerialExecutor


def model_hash(model: Tensor) -> str:
    """sha256 of the flat vector [D]."""
    return hashlib.sha256(model.numpy().tobytes()).hexdigest()


def evaluate(
    assignment: Assignment,
    federation: Federation,
    pool: Executor,
    model: Tensor,
    diverged: bool,
    wanted: Mapping[str, Any],
    kept_in: Path | None = None,
) -> Evaluation | None:
    """The evaluation of a final model [D]; of one that diverged nothing is measured. wanted: from `Plan.evaluation_of`;
    kept_in: where predictions go if they are to be kept.

    None where the data set that it needs beside the cell's own is not prepared yet. Raises DataError.
    """
    own = wanted["settings"]
    if own.get("out_of_distribution") and assignment.ood_file is None:
        return None
    hashes = inputs.checked(assignment)
    fields: dict[str, Any] = dict.fromkeys(("final", "reliability", "confusion", "clients"))
    if not diverged:
        samples = own.get("monte_carlo_samples", 1)
        try:
            predictions, fields = evaluate_model(federation, model, pool, samples, own["ece_bins"])
        except ArithmeticError as error:
            raise UserError(f"{assignment.job}: evaluation: {error}") from None
        fields["reliability"] = Reliability(**fields["reliability"])
        if own.get("keep_predictions") and kept_in is not None:
            with whole_file(kept_in) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, probabilities=predictions.probabilities, labels=predictions.labels)
    return Evaluation(
        cell=CellNames(**assignment.job.cell.as_dict()),
        model_sha256=model_hash(model),
        settings=dict(own),
        fingerprint=wanted["fingerprint"],
        data=EvaluationData.model_validate(hashes),
        environment=EvaluationEnvironment(torch=torch.__version__, device=assignment.device),
        **fields,
    )


def load_model(file: Path, layout: Layout) -> Tensor:
    """The flat vector [D] of a model file. Raises DataError."""
    advice = "delete it and run snakemake again"
    try:
        tensors = load_file(file)
    except FileNotFoundError:
        raise DataError(
            f"{file} is not there, though the cell's result is: delete that and run snakemake again"
        ) from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise DataError(f"{file} is damaged ({error}): {advice}") from None
    shapes = {name: shape for name, (_, shape) in layout.tensors.items()}
    if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        raise DataError(f"{file} holds other tensors than the cell's network has: {advice}")
    vector = np.concatenate([tensors[name].ravel() for name in shapes])
    if vector.dtype != np.float32 or not np.isfinite(vector).all():
        raise DataError(f"{file} holds entries that are not finite float32 numbers: {advice}")
    return torch.from_numpy(vector)


def evaluate_block(plan: Plan, block: Block) -> int:
    """Evaluate the cells of a block whose evaluation is missing or of something else; return how many.

    Then write the block's index: a digest of each evaluation. Raises DataError where a cell's result cannot be used.
    """
    found = states(plan, plan.block(*block))
    wrong = [item for item in found if item.result is None]
    if wrong:
        raise DataError(wrong[0].reason or f"there is no result of {wrong[0].cell}")
    to_do = [item for item in found if item.evaluation is None]
    if to_do:
        with claimed_device(plan.settings.device, plan.settings.cells_per_gpu) as (device, why):
            print(
                f"{'/'.join(block)}: {len(to_do)} of {len(found)} cells to evaluate on {device}, since {why}",
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
    evaluation = evaluate(assignment, federation, SerialExecutor(work), model, diverged, wanted, kept_in)
    if evaluation is None:
        raise DataError(f"there is no {ood_file}: prepare the data set first (snakemake --cores 1 prepare_all)")
    write(plan.paths.evaluation(cell), evaluation)


def _digest(plan: Plan, item: CellState) -> str:
    assert item.result is not None
    evaluation = item.evaluation or read_evaluation(plan.paths.evaluation(item.cell), item.cell)
    content = [item.result.model_dump(exclude={"environment"}), evaluation.model_dump(exclude={"environment"})]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]
