"""Why a result is not what the present settings, code and data would give, in plain words.

A result records what made it: its settings, a digest of each module that it ran, and the content hashes of its data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bflp.files import write_text
from bflp.fingerprint import RULE_FILE, cell_modules, digests, module_path
from bflp.grid.plan import PREPARE_MODULES, Plan


def mismatch(result: Mapping[str, Any], job: Mapping[str, Any], hashes: Mapping[str, str]) -> str | None:
    """Why a result does not fit its present job and data; None when it does. hashes: of the data sets, by name."""
    found = []
    settings = list(_settings(result["settings"], job))
    if settings:
        found.append(f"other settings ({', '.join(settings)})")
    if result["fingerprint"] != job["fingerprint"]:
        found.append(f"other code ({code(result, job)})")
    names = {
        "dataset": job["cell"]["dataset"],
        "out_of_distribution": job["settings"]["evaluation"]["out_of_distribution"],
    }
    for key, name in names.items():
        if name in hashes and result["data"][key] != hashes[name]:
            found.append(f"other data (images or labels of {name})")
    return " and ".join(found) or None


def record_preparation(plan: Plan, dataset: str, job: str) -> None:
    """Write down what a data set was prepared from, and by what code. job: as the plan gave it before that."""
    record = {"job": json.loads(job), "code": digests(PREPARE_MODULES)}
    write_text(plan.made_file(dataset), json.dumps(record) + "\n")


def preparation(plan: Plan, dataset: str) -> str | None:
    """Why a data set that is prepared is to be prepared anew; None when it is not, or when that is not known."""
    source = plan.settings.source(dataset)
    try:
        record = json.loads(plan.made_file(dataset).read_text(encoding="utf-8"))
        then, code_then = record["job"], record["code"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if source is not None and not Path(source).exists():
        return None
    now = json.loads(plan.prepare_job(dataset))
    if then["origin"] != now["origin"]:
        return f"{source} has other content" if source else "it has another source"
    if then["fingerprint"] != now["fingerprint"]:
        return f"other code ({', '.join(changed_files(code_then, digests(PREPARE_MODULES)))})"
    return None


def code(result: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """Which files were changed since the result was made, as far as it tells."""
    then = result["environment"].get("code") or {}
    changed = changed_files(then, digests(cell_modules(job), job.get("aggregator_file"))) if then else []
    if RULE_FILE in changed:
        changed[changed.index(RULE_FILE)] = str(job.get("aggregator_file", "the rule's file"))
    return ", ".join(changed) or f"fingerprint {result['fingerprint']}, now {job['fingerprint']}"


def changed_files(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files of the modules whose digests differ, or that are covered no more or only now."""
    modules = sorted(module for module in then.keys() | now.keys() if then.get(module) != now.get(module))
    # Usually a file that is new or gone shows in the one that imports it, too; naming both is no harm.
    return [module_path(module) for module in modules]


def _settings(then: Mapping[str, Any], job: Mapping[str, Any]) -> Iterator[str]:
    """Each changed setting as `key old -> new`, with the key that it has in the config."""
    cell, now = job["cell"], job["settings"]
    in_config = {
        "augment": f"datasets.{cell['dataset']}.augment",
        "partition": f"partitions.{cell['partition']}",
        "setup": f"setups.{cell['clients']}",
    }
    for key in sorted(then.keys() | now.keys()):
        yield from _differences(in_config.get(key, key), then.get(key), now.get(key))


def _differences(key: str, then: Any, now: Any) -> Iterator[str]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for part in sorted(then.keys() | now.keys()):
            yield from _differences(f"{key}.{part}", then.get(part), now.get(part))
    elif then != now:
        yield f"{key} {json.dumps(then)} -> {json.dumps(now)}"
