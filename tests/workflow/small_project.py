"""A copy of the project in a folder of its own, with a small grid that trains in seconds."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from finished_grid import copy_project

ROOT = Path(__file__).resolve().parents[2]

# 6 rows, 2 clients, 2 rounds.
CONFIG: dict[str, Any] = {
    "grid": {
        "datasets": ["tiny"],
        "partitions": ["iid"],
        "clients": [2],
        "models": ["FED", "FEDAVG", "FVBA", "FVBWA"],
        "aggregators": ["EAA", "PPA"],
        "seeds": [0],
    },
    "datasets": {"tiny": {"source": "tiny.npz"}},
    "setups": {2: {"fraction": 1.0, "rounds": 2}},
    "training": {"local_epochs": 1, "batch_size": 20, "learning_rate": 0.05},
    "evaluation": {"monte_carlo_samples": 2, "ece_bins": 10},
    "processes": 1,
    "device": "cpu",
    # Signs that mean something to a shell, to test that they mean nothing here.
    "results_dir": "the results; #1 & (2)",
    "data_dir": "the data",
}
CELLS = "the results; #1 & (2)/cells/tiny/iid/2"
WORK = ("prepare", "partition", "train", "evaluate", "merge")
ROWS = ["FED/none", "FEDAVG/none", "FVBA/EAA", "FVBA/PPA", "FVBWA/EAA", "FVBWA/PPA"]


def source_arrays(samples: int = 60) -> dict[str, np.ndarray[Any, Any]]:
    """Gray 16 x 16 images of three labels, which a bright stripe tells."""
    generator = np.random.default_rng(0)
    result: dict[str, np.ndarray[Any, Any]] = {}
    for split, count in (("train", samples), ("test", 30)):
        labels = np.arange(count) % 3
        images = generator.integers(0, 90, (count, 16, 16), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[:, 5 * label : 5 * label + 5] += 160
        result |= {f"{split}_images": images, f"{split}_labels": labels}
    return result


class Project:
    """The copy in `folder`; its small grid is small.yaml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, folder: Path) -> Project:
        """A fresh copy, without any results."""
        folder.mkdir(parents=True, exist_ok=True)
        copy_project(folder)
        np.savez_compressed(folder / "tiny.npz", **source_arrays())  # type: ignore[arg-type]
        project = cls(folder)
        project.configure()
        return project

    def configure(self, **sections: Any) -> None:
        """Write small.yaml: CONFIG, with sections merged into it."""
        config = copy.deepcopy(CONFIG)
        for key, value in sections.items():
            config[key] = {**config.get(key, {}), **value} if isinstance(value, dict) else value
        (self.folder / "small.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")

    def snakemake(self, *arguments: str, configfile: str | None = "small.yaml") -> subprocess.CompletedProcess[str]:
        chosen = ["--configfile", configfile] if configfile else []
        return self._run([sys.executable, "-m", "snakemake", "--cores", "2", *arguments, *chosen])

    def bflp(self, verb: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """`bflp VERB ...`, of the copy."""
        return self._run([sys.executable, "workflow/scripts/run.py", verb, *map(str, arguments)])

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The interpreter, in the copy."""
        return self._run([sys.executable, *arguments])

    def train(self, row: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Train a cell by hand."""
        return self.bflp("train", "--configfile", "small.yaml", "--cell", f"tiny/iid/2/{row}/seed0", *arguments)

    def planned(self, *arguments: str, configfile: str | None = "small.yaml") -> dict[str, int]:
        """The job table of a dry run: rule -> number of jobs, without the target; empty: nothing to be done."""
        done = checked(self.snakemake("-n", *arguments, configfile=configfile))
        if "Nothing to be done" in done.stdout + done.stderr:
            return {}
        table = re.findall(
            r"^(\w+) +(\d+)$", done.stdout.partition("Job stats:")[2].partition("total")[0], re.MULTILINE
        )
        assert table, done.stdout
        return {rule: int(count) for rule, count in table if rule != "all"}

    def work(self) -> dict[str, int]:
        """The job table of a dry run, without what is made of the merged results."""
        return {rule: count for rule, count in self.planned().items() if rule in WORK}

    def planned_cells(self, *arguments: str) -> set[str]:
        """The rows and seeds that a dry run would train."""
        done = checked(self.snakemake("-n", *arguments))
        return set(re.findall(rf"output: {re.escape(CELLS)}/(\S+)\.json", done.stdout))

    @property
    def results(self) -> Path:
        return self.folder / CONFIG["results_dir"]

    @property
    def data(self) -> Path:
        return self.folder / CONFIG["data_dir"]

    def result(self, row: str, seed: int = 0) -> Path:
        return self.folder / CELLS / row / f"seed{seed}.json"

    def evaluation(self, row: str, seed: int = 0) -> Path:
        return self.results / "evaluations/tiny/iid/2" / row / f"seed{seed}.json"

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )


def checked(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def one_error(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a program ended with; fails where it ended well or with a traceback."""
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "Traceback" not in text, text
    lines = [line for line in text.splitlines() if "error: " in line]
    assert len(lines) == 1, text
    return lines[0]
