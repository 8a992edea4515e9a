"""Why something that was made is not what the present settings, code and data would give, in plain words.

A result records what made it: its settings, a digest of each module that it ran, and the content hashes of its data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bflp.files import write_text
from bflp.fingerprint import digests, module_path
from bflp.grid.coverage import PREPARE_MODULES, training_digests
from bflp.grid.job import WITH_FILES, without_paths
from bflp.grid.plan import Plan
from bflp.results.evaluation import Evaluation
from bflp.results.result import Result


def result_mismatch(result: Result, job: Mapping[str, Any], hashes: Mapping[str, str]) -> str | None:
    """Why a result does not fit its present job and data; None when it does. hashes: of the data sets, by name."""
    cell, found = job["cell"], []
    in_config = {
        "augment": f"datasets.{cell['dataset']}.augment",
        "partition": f"partitions.{cell['partition']}",
        "setup": f"setups.{cell['clients']}",
        "rule": f"aggregators.{cell['aggregator']}",
        **{key: f"models.{cell['model']}.{key}" for key in ("weights", "algorithm", "optimiser")},
    }
    then, now = result.settings, job["settings"]
    moved = [key for key in WITH_FILES if all("file" in each.get(key, {}) for each in (then, now))]
    settings = list(_changed_settings(without_paths(then, moved), without_paths(now, moved), in_config))
    if settings:
        found.append(f"other settings ({', '.join(settings)})")
    if result.fingerprint != job["fingerprint"]:
        changed = _changed_code(result.environment.code, training_digests(job))
        found.append(f"other code ({changed or f'fingerprint {result.fingerprint}'})")
    if result.data.dataset != hashes.get(cell["dataset"], result.data.dataset):
        found.append(f"other data (images or labels of {cell['dataset']})")
    return " and ".join(found) or None


def evaluation_mismatch(
    evaluation: Evaluation, result: Result, wanted: Mapping[str, Any], hashes: Mapping[str, str]
) -> str | None:
    """Why an evaluation does not fit its result and what is wanted now (`Plan.evaluation_of`); None when it does."""
    ood = wanted["settings"].get("out_of_distribution")
    if evaluation.model_sha256 != result.model_sha256:
        return "another model"
    settings = list(_changed_settings(evaluation.settings, wanted["settings"], {}, "evaluation."))
    if settings:
        return f"other settings ({', '.join(settings)})"
    if evaluation.fingerprint != wanted["fingerprint"]:
        return "other code"
    if (evaluation.data.dataset, evaluation.data.partition) != (result.data.dataset, result.data.partition):
        return f"other data (images or labels of {result.cell.dataset})"
    if evaluation.final is not None and ood and evaluation.data.out_of_distribution != hashes.get(ood):
        return f"other data (images of {ood})"
    return None


def record_preparation(plan: Plan, dataset: str, job: str) -> None:
    """Write down what a data set was prepared from, and by what code. job: as the plan gave it before that."""
    record = {"job": json.loads(job), "code": digests(PREPARE_MODULES)}
    write_text(plan.paths.made(dataset), json.dumps(record) + "\n")


def preparation(plan: Plan, dataset: str) -> str | None:
    """Why a data set that is prepared has to be prepared again; None when it need not be, or nobody knows."""
    source = plan.settings.source(dataset)
    try:
        record = json.loads(plan.paths.made(dataset).read_text(encoding="utf-8"))
        then, code_then = record["job"], record["code"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if source is not None and not Path(source).exists():
        return None
    now = json.loads(plan.prepare_job(dataset))
    if then["origin"] != now["origin"]:
        return f"{source} has other content" if source else "it has another source"
    if then["fingerprint"] != now["fingerprint"]:
        return f"other code ({_changed_code(code_then, digests(PREPARE_MODULES))})"
    return None


def _changed_code(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The files whose digests differ, or that are covered no more or only now; a file that is new or gone usually
    shows in the one that imports it, too."""
    # A file of one's own may have moved.
    moved = {then[name] for name in then if name.endswith(".py")} & {now[name] for name in now if name.endswith(".py")}
    differing = (name for name in then.keys() | now.keys() if then.get(name) != now.get(name))
    modules = sorted(name for name in differing if not {then.get(name), now.get(name)} & moved)
    return ", ".join(map(module_path, modules)) if then else ""


def _changed_settings(then: Any, now: Any, in_config: Mapping[str, str], before: str = "") -> Iterator[str]:
    """Each changed setting as `key old -> new`, with the key that it has in the config."""
    for key in sorted(then.keys() | now.keys()):
        name, old, new = in_config.get(key, f"{before}{key}"), then.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _changed_settings(old, new, {}, f"{name}.")
        elif old != new:
            yield f"{name} {json.dumps(old)} -> {json.dumps(new)}"
