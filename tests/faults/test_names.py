"""Names and paths that a shell would understand as something else are refused, or are names and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_project import CONFIG, Project

from bflp.errors import ConfigError
from bflp.settings.schema import Settings

COMMANDS = (
    *("$(touch canary)", "`touch canary`", "${HOME}", "'; touch canary; '", '"; touch canary; "', "a\ntouch canary"),
    *("a\\", "{x}", "{dataset}", "*", "-rf", "--config", "~/x", "\0", ""),
)
OF_NAMES = (*COMMANDS, "../x", "..", ".", "a/b", "/etc", "a b", "a;touch canary", "a|b", "a&b", "a>b", "-x", "x" * 101)


def _replace(**sections: Any) -> dict[str, Any]:
    changed = dict(CONFIG)
    for key, value in sections.items():
        changed[key] = {**changed.get(key, {}), **value} if isinstance(value, dict) else value
    return {**changed, "partitions": {"iid": {"strategy": "iid"}, **changed.get("partitions", {})}}


@pytest.mark.parametrize("name", OF_NAMES)
def test_refused_names(name: str) -> None:
    for overlay in (
        {"grid": {"datasets": [name]}, "datasets": {name: {"source": "tiny.npz"}}},
        {"grid": {"partitions": [name]}, "partitions": {name: {"strategy": "iid"}}},
        {"grid": {"aggregators": [name]}},
        {"grid": {"aggregators": [name]}, "aggregators": {name: {"file": __file__}}},
        {"grid": {"models": [name]}, "models": {name: {}}},
        {"grid": {"clients": [name]}, "setups": {name: {"clients": 2, "fraction": 1.0, "rounds": 2}}},
        {"evaluation": {"out_of_distribution": name}, "datasets": {name: {"source": "tiny.npz"}}},
    ):
        with pytest.raises(ConfigError) as refused:
            Settings.parse(_replace(**overlay))
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("path", COMMANDS)
def test_refused_paths(path: str) -> None:
    for overlay in (
        {"results_dir": path},
        {"data_dir": path},
        {"datasets": {"tiny": {"source": path}}},
        {"aggregators": {"MINE": {"file": path}}},
    ):
        with pytest.raises(ConfigError) as refused:
            Settings.parse(_replace(**overlay))
        assert "\n" not in str(refused.value)


def test_what_is_allowed_is_no_command(tmp_path: Path) -> None:
    """The real workflow, and programs by hand, where every name and path is as odd as may be, the project's, too."""
    project = Project.make(tmp_path / "a pro;touch canary&(x)")
    odd = "s rc;touch canary3&(x)#!|<>[a]%~"
    (project.folder / odd).mkdir()
    shutil.move(project.folder / "tiny.npz", project.folder / odd / "a b;touch canary.npz")
    rule = project.folder / odd / "my rule;touch canary.py"
    rule.write_text("from bflp.aggregators.eaa import aggregate\n", encoding="utf-8")
    dataset, partition = "ti+n.y_-1", "i.+_-d"
    config = {
        **CONFIG,
        "grid": {
            **CONFIG["grid"],
            "models": ["FVBA"],
            "aggregators": ["MY_1"],
            "datasets": [dataset],
            "partitions": [partition],
        },
        "datasets": {dataset: {"source": f"{odd}/a b;touch canary.npz"}},
        "partitions": {partition: {"strategy": "iid"}},
        "aggregators": {"MY_1": {"file": f"{odd}/my rule;touch canary.py"}},
        "evaluation": {**CONFIG["evaluation"], "out_of_distribution": dataset},
        "results_dir": "o ut;touch canary&(x) #!|<>[b]",
        "data_dir": "../a pro;touch canary&(x)/d a&touch canary2;",
    }
    (project.folder / "small.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    results = f"{config['results_dir']}"
    done = project.snakemake(f"{results}/results.csv", f"{results}/tables/results2.tex")
    assert done.returncode == 0, done.stdout + done.stderr
    cell = f"{dataset}/{partition}/2/FVBA/MY_1/seed0"
    for command in (["verify"], ["train", "--cell", cell], ["tables", "--partial"]):
        done = project.bflp(*command, "--configfile", "small.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
    assert (project.folder / results / "cells" / f"{cell}.json").exists()
    assert list(tmp_path.rglob("canary*")) == []
    made = {"o ut;touch canary&(x) #!|<>[b]", "d a&touch canary2;", odd, ".snakemake", "small.yaml"}
    assert {path.name for path in project.folder.iterdir()} <= made | {
        *("Snakefile", "bflp", "config.yaml", "envs", "profiles", "workflow"),
    }
