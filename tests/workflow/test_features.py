"""Inputs that are not images: rows of features, from a source file to tables, figures and a model in a notebook."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_project import Project, checked, one_error

from bflp import load

ROWS = {"FEDAVG": "none", "FVBWA": "EAA"}


def table(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three labels, one of them on both sides of the others: no linear classifier tells more than two thirds."""
    generator = np.random.default_rng(seed)
    labels = np.arange(samples) % 3
    features = generator.normal(0.0, 0.3, (samples, 5))
    features[:, 0] += np.where(labels == 2, 3.0 * generator.choice([-1, 1], samples), 2.0 * labels - 1.0)
    return features, labels


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.make(tmp_path_factory.mktemp("features"))
    (train, train_labels), (test, test_labels) = table(240, 0), table(90, 1)
    arrays = {"train_features": train, "train_labels": train_labels}
    arrays |= {"test_features": test.astype(np.float32), "test_labels": test_labels}
    np.savez(project.folder / "tiny.npz", **arrays)  # type: ignore[arg-type]
    return project


def test_features_take_a_network_that_fits(project: Project) -> None:
    project.configure(grid={"models": ["FEDAVG"]})
    assert "LeNet needs images of at least 16x16 pixels" in one_error(project.train("FEDAVG/none"))


def test_from_a_source_file_to_tables(project: Project) -> None:
    project.configure(
        grid={"models": list(ROWS), "aggregators": ["EAA"]},
        network={"name": "mlp", "sizes": [16]},
        setups={2: {"fraction": 1.0, "rounds": 6}},
        training={"local_epochs": 4, "learning_rate": 0.1},
    )
    checked(project.snakemake())
    merged = pd.read_csv(project.results / "results.csv").set_index("model")
    assert (merged.loc[list(ROWS), "accuracy"] > 85).all(), merged["accuracy"]
    text = (project.results / "tables/results2.md").read_text(encoding="utf-8")
    assert all(row in text for row in ROWS)
    features, labels = table(90, 1)
    for model, rule in ROWS.items():
        found = load(Path(project.result(f"{model}/{rule}"))).predict(features.astype(np.float32), samples=5)
        assert np.mean(found.argmax(1) == labels) > 0.85
