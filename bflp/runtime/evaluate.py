"""Evaluating a final model: by the job that trained it, or later, without training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import Tensor

from bflp.engine.evaluation import evaluate as evaluate_model
from bflp.engine.evaluators import OF_CLIENTS
from bflp.engine.round import Executor, Federation
from bflp.errors import DataError, UserError
from bflp.files import sha256_of, whole_file
from bflp.networks.layout import Layout
from bflp.results.evaluation import Evaluation, EvaluationData, EvaluationEnvironment, Reliability
from bflp.results.result import CellNames
from bflp.runtime import inputs
from bflp.runtime.inputs import Assignment
from bflp.runtime.tensors import AGAIN, reading


def model_hash(model: Tensor) -> str:
    """sha256 of the flat vector [D]."""
    return hashlib.sha256(model.numpy().tobytes()).hexdigest()


def needs_clients(wanted: Mapping[str, Any]) -> bool:
    """Whether an evaluation reads the models of the last round's clients. wanted: from `Plan.evaluation_of`."""
    return not set(OF_CLIENTS).isdisjoint(wanted["settings"].get("final", {}))


def evaluate(
    assignment: Assignment,
    federation: Federation,
    pool: Executor,
    model: Tensor,
    diverged: bool,
    wanted: Mapping[str, Any],
    kept_in: Path | None = None,
    clients: Mapping[int, Tensor] | None = None,
) -> Evaluation | None:
    """The evaluation of a final model [D]; of one that diverged nothing is measured. wanted: from `Plan.evaluation_of`;
    kept_in: where predictions go if they are to be kept; clients: the parameters [D] that those of the last round
    trained.

    None where the data set that it needs beside the cell's own is not prepared yet. Raises DataError.
    """
    own = wanted["settings"]
    if own.get("out_of_distribution") and assignment.ood_file is None:
        return None
    hashes = inputs.checked(assignment)
    fields: dict[str, Any] = dict.fromkeys(("final", "reliability", "confusion", "clients"))
    if not diverged:
        samples, asked = own.get("monte_carlo_samples", 1), own.get("final", {})
        try:
            predictions, fields = evaluate_model(federation, model, pool, samples, own["ece_bins"], asked, clients)
        except ArithmeticError as error:
            raise UserError(f"{assignment.job}: evaluation: {error}") from None
        fields["reliability"] = Reliability(**fields["reliability"])
        if own.get("keep_predictions") and kept_in is not None:
            with whole_file(kept_in) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, probabilities=predictions.probabilities, labels=predictions.labels)
            fields["predictions"] = sha256_of(kept_in)
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
    with reading(file):
        tensors = load_file(file)
    shapes = {name: shape for name, (_, shape) in layout.tensors.items()}
    if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        raise DataError(f"{file} holds other tensors than the cell's network has: {AGAIN}")
    vector = np.concatenate([tensors[name].ravel() for name in shapes])
    if vector.dtype != np.float32 or not np.isfinite(vector).all():
        raise DataError(f"{file} holds entries that are not finite float32 numbers: {AGAIN}")
    return torch.from_numpy(vector)
