"""Which code can change what: the modules that a fingerprint starts from.

A fingerprint covers the import closure of these modules. They all lie inside the wall (docs/concepts.md): what runs the
engine, reads settings or draws tables is in no fingerprint, and its edits compute nothing again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bflp import networks
from bflp.errors import UserError
from bflp.fingerprint import digests, fingerprint, forget
from bflp.grid.job import Job

PREPARE_MODULES = ("bflp.datasets.convert",)


def partition_modules(strategy: str) -> tuple[str, ...]:
    """Of making a partition."""
    return ("bflp.partition.split", f"bflp.partition.{strategy}")


def training_modules(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Of training a cell, as its `cell`, `settings` and `files` say."""
    settings, files = job["settings"], job.get("files", {})
    modules = ["bflp.engine.round", *partition_modules(settings["partition"]["strategy"]), *_network_modules(job)]
    if settings["augment"]:
        modules.append("bflp.engine.augment")
    if settings["training"].get("stack"):
        modules.append("bflp.engine.stack")
    kind = settings.get("posterior", {"kind": "variational"})["kind"]
    if kind != "variational":
        modules.append(f"bflp.engine.{kind}")
    if "algorithm" in settings and "algorithm" not in files:
        modules.append(f"bflp.algorithms.{settings['algorithm']['name']}")
    if job["cell"]["aggregator"] != "none" and "aggregator" not in files:
        modules.append(f"bflp.aggregators.{job['cell']['aggregator'].lower()}")
    return tuple(modules)


def evaluation_modules(
    job: Mapping[str, Any], metrics: tuple[str, ...], asked: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Of evaluating a cell's final model. metrics: the names of those with a file of their own; asked: evaluators by
    name, with their settings."""
    asked = asked or {}
    further = [f"bflp.engine.evaluators.{name}" for name in asked]
    further += [f"bflp.aggregators.{asked['personal']['rule'].lower()}"] if "personal" in asked else []
    metric_files = (f"bflp.engine.metrics.{name}" for name in metrics)
    return ("bflp.engine.evaluation", *metric_files, *further, *_network_modules(job))


def _network_modules(job: Mapping[str, Any]) -> tuple[str, ...]:
    posterior = job["settings"].get("posterior", {"kind": "none"})
    sampled = posterior.get("kind", "variational") not in ("none", "variational")
    weights = posterior.get("variational", "dense") if posterior["kind"] == "variational" else "none"
    found = networks.modules(job["settings"].get("network", {"name": "lenet"}), weights)
    return (*found, "bflp.networks.sampled") if sampled else found


def outside_files(job: Mapping[str, Any], *roles: str) -> tuple[str, ...]:
    """The user's own files that the cell runs, in a fixed order; with `roles` only those."""
    files: Mapping[str, str] = job.get("files", {})
    return tuple(files[role] for role in sorted(files) if not roles or role in roles)


def training_fingerprint(job: Mapping[str, Any]) -> str:
    """Of all code that can change what training the cell gives."""
    return fingerprint(training_modules(job), outside_files(job))


def training_digests(job: Mapping[str, Any]) -> dict[str, str]:
    """A short digest of each module and file that the fingerprint covers, for the result."""
    return digests(training_modules(job), outside_files(job))


def check_code(job: Job) -> dict[str, str]:
    """A short digest of each module that the job's fingerprint covers. Raises UserError unless the code has it."""
    forget()
    parts = job.as_dict()
    if training_fingerprint(parts) != job.fingerprint:
        raise UserError(
            "the code was changed after this cell's job was made, so its result would not be of either version: "
            "run snakemake again"
        )
    return training_digests(parts)
