"""A copy of the project with a small grid that is finished: 2 data sets x 2 partitions x 12 rows = 48 cells.

The cells are trained in one process, and Snakemake is then told that they are done (`--touch` records their params as
a run does); starting 48 programs would take minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

PROJECT = Path(__file__).resolve().parents[2]
COPIED = ("Snakefile", "bflp", "config.yaml", "envs", "profiles", "workflow")

CONFIG: dict[str, Any] = {
    "grid": {
        "datasets": ["plain", "flipped"],
        "partitions": ["iid", "uneven"],
        "clients": [2],
        "models": ["FED", "FEDAVG", "FVBA", "FVBWA"],
        "aggregators": ["EAA", "GAA", "AALV", "PPA", "CF"],
        "seeds": [0],
    },
    "datasets": {
        "plain": {"source": "plain.npz"},
        "flipped": {"source": "flipped.npz", "augment": {"flip_probability": 0.5}},
    },
    "partitions": {"uneven": {"strategy": "dirichlet", "alpha": 5.0, "min_samples": 2}},
    "setups": {2: {"fraction": 1.0, "rounds": 1}},
    "training": {"local_epochs": 1, "batch_size": 20},
    "evaluation": {"monte_carlo_samples": 2, "ece_bins": 10},
    "processes": 1,
    "device": "cpu",
}

TRAIN_ALL = """
from pathlib import Path
from bflp.cli import parser_of, train
from bflp.grid.plan import Plan
from bflp.runtime.evaluate_block import evaluate_block
from bflp.settings.schema import load

plan = Plan(load([Path("config.yaml"), Path("small.yaml")]))
for cell in plan.cells:
    train.run(parser_of("train").parse_args(["--configfile", "small.yaml", "--cell", str(cell)]))
for block in plan.blocks():
    evaluate_block(plan, block)
"""


def copy_project(folder: Path) -> None:
    """Copy what a run needs, without any results."""
    for name in COPIED:
        source, target = PROJECT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)


def write_source(path: Path, seed: int, samples: int = 40) -> None:
    """A synthetic data set: gray 16 x 16 images of two labels."""
    generator = np.random.default_rng(seed)
    np.savez(
        path,
        train_images=generator.integers(0, 256, (samples, 16, 16), dtype=np.uint8),
        train_labels=np.arange(samples) % 2,
        test_images=generator.integers(0, 256, (12, 16, 16), dtype=np.uint8),
        test_labels=np.arange(12) % 2,
    )


def make(folder: Path) -> None:
    """A copy of the project in `folder` with the finished grid of CONFIG in small.yaml."""
    copy_project(folder)
    write_source(folder / "plain.npz", 1)
    write_source(folder / "flipped.npz", 2)
    write_config(folder, CONFIG)
    _checked(subprocess.run([sys.executable, "-c", TRAIN_ALL], cwd=folder, capture_output=True, text=True, check=False))
    # Tables and figures of it are not needed, only that they are there.
    for path in re.findall(r"^    output: (.*)$", _checked(snakemake(folder, "-n")).stdout, flags=re.MULTILINE):
        for file in path.split(", "):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).touch()
    _checked(snakemake(folder, "--touch", "--forceall"))


def write_config(folder: Path, config: dict[str, Any]) -> None:
    (folder / "small.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the copy's workflow with the config small.yaml."""
    return subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "2", *arguments, "--configfile", "small.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )


def would_run(folder: Path, *arguments: str) -> tuple[set[str], list[str]]:
    """The cells (dataset/partition/clients/model/aggregator/seed) and the other rules' jobs that a dry run lists."""
    done = _checked(snakemake(folder, "-n", *arguments))
    cells = re.findall(r"output: results/cells/(\S+)\.json", done.stdout)
    rules = re.findall(r"^(?:local)?rule (\w+):$", done.stdout, flags=re.MULTILINE)
    return set(cells), [rule for rule in rules if rule not in ("train", "all")]


def _checked(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return done
