"""examples/every-method.yaml: a grid with every algorithm and every kind of posterior, through the real workflow."""

from __future__ import annotations

import shutil
from pathlib import Path

from small_project import ROOT, Project, checked

from bflp.results.frame import read_csv
from bflp.settings.schema import load

CONFIG = "examples/every-method.yaml"


def test_each_is_better_than_chance(tmp_path: Path) -> None:
    """There are ten labels."""
    project = Project.make(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    checked(project.snakemake("results/every-method/results.csv", configfile=CONFIG))
    results = read_csv(tmp_path / "results/every-method/results.csv").set_index("model")
    assert len(results) == len(load([ROOT / "config.yaml", ROOT / CONFIG]).grid.models)
    weak = results["accuracy"][results["accuracy"] < 25]
    assert weak.empty, weak
