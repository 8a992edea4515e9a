"""A cell's federated algorithm, loaded with its settings."""

from __future__ import annotations

from bflp.engine.local import Chosen
from bflp.grid.job import Job
from bflp.settings.rules import algorithm_module


def load_algorithm(job: Job) -> Chosen:
    """The algorithm that the job's settings name; FedAvg where they name none. Raises UserError."""
    given = dict(job.settings.get("algorithm", {"name": "fedavg"}))
    module = algorithm_module(given)
    settings = getattr(module, "Settings", None)
    own = {key: value for key, value in given.items() if key not in ("name", "file")}
    return Chosen(module, settings(**own) if settings else None)
