"""The programs by hand, and what a training program refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from small_project import ROWS, Project, checked, one_error


def the_same_in_every_run(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {key: value for key, value in result.items() if key not in ("environment", "timing")}


def test_a_cell_by_hand_is_the_workflows_whatever_the_number_of_processes(
    finished_run: tuple[Project, object], finished: Project
) -> None:
    """Without the workflow, from nothing, and in three processes: the same result and model, to the bit."""
    shutil.rmtree(finished.results)
    shutil.rmtree(finished.data)
    done = checked(finished.train("FVBWA/PPA", "--processes", "3"))
    assert "done, 2 rounds" in done.stderr
    ours, theirs = finished.result("FVBWA/PPA"), finished_run[0].result("FVBWA/PPA")
    assert the_same_in_every_run(ours) == the_same_in_every_run(theirs)
    assert json.loads(ours.read_text(encoding="utf-8"))["environment"]["processes"] == 3
    assert ours.with_suffix(".safetensors").read_bytes() == theirs.with_suffix(".safetensors").read_bytes()


def test_an_overlay_means_the_same_to_snakemake_and_to_programs(fresh: Project) -> None:
    """Of config.yaml's Dirichlet partition nothing is left where the overlay names another strategy."""
    own = {"strategy": "labels", "labels_per_client": 2}
    fresh.configure(grid={"partitions": ["noniid"], "models": ["FED"]}, partitions={"noniid": own})
    checked(fresh.snakemake("--until", "partition", "--config", "processes=1"))
    with np.load(fresh.results / "partitions/tiny/noniid/2/seed0.npz") as made:
        assert json.loads(str(made["job"]))["settings"] == own
    assert " 0 file(s) wrong" in fresh.bflp("verify", "--configfile", "small.yaml").stdout


def test_a_cell_that_is_done_is_left_as_it_is(finished: Project) -> None:
    """Trained again its times would be others than results.csv says. What is kept is put back; else it trains."""
    result = finished.result("FVBWA/PPA")
    before = result.read_bytes()
    assert "is done" in checked(finished.train("FVBWA/PPA")).stderr
    assert result.read_bytes() == before
    result.with_suffix(".safetensors").unlink()
    model = result.with_suffix(".safetensors")
    assert "put back" in checked(finished.train("FVBWA/PPA")).stderr
    assert result.read_bytes() == before and model.exists()
    shutil.rmtree(finished.results / "kept")
    model.unlink()
    assert "done, 2 rounds" in checked(finished.train("FVBWA/PPA")).stderr


def test_the_whole_flow_by_hand(finished: Project) -> None:
    """Merging and tables by hand give what the workflow gave."""
    before = {
        path: path.read_bytes() for path in [finished.results / "results.csv", *finished.results.glob("tables/*.md")]
    }
    assert len(before) == 4
    for path in before:
        path.unlink()
    assert "6 cells" in checked(finished.bflp("merge", "--configfile", "small.yaml")).stdout
    shown = checked(finished.bflp("tables", "--configfile", "small.yaml", "--show")).stdout
    assert {path: path.read_bytes() for path in before} == before
    assert (finished.results / "tables/results2.md").read_text(encoding="utf-8") in shown
    assert all(row.split("/")[0] in shown for row in ROWS)


def swap_images(path: Path) -> None:
    """Another content, in a file of the right form."""
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["train_images"] = arrays["train_images"][::-1]
    np.savez(path, **arrays)


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 16
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (swap_images, "was changed after it was prepared"),
    (flip_bit, "was changed after it was prepared"),
    (truncate, "is broken"),
]


def test_training_refuses_changed_data(finished_run: tuple[Project, object], tmp_path: Path) -> None:
    projects = [Project(tmp_path / damage.__name__) for damage, _ in DAMAGE]
    for project, (damage, _) in zip(projects, DAMAGE, strict=True):
        shutil.copytree(finished_run[0].folder, project.folder)
        project.result("FED/none").unlink()
        shutil.rmtree(project.results / "kept")
        damage(project.data / "tiny.npz")
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda project: project.train("FED/none"), projects))
    for project, ended, (_, words) in zip(projects, done, DAMAGE, strict=True):
        line = one_error(ended)
        assert "the data/tiny.npz" in line
        assert words in line
        assert not project.result("FED/none").exists()


def test_a_cell_by_hand_makes_its_partition_anew_where_it_is_of_other_settings(finished: Project) -> None:
    finished.result("FED/none").unlink()
    finished.configure(partitions={"iid": {"strategy": "quantity", "alpha": 5.0}})
    assert "done, 2 rounds" in checked(finished.train("FED/none")).stderr
    with np.load(finished.results / "partitions/tiny/iid/2/seed0.npz") as made:
        assert json.loads(str(made["job"]))["settings"]["strategy"] == "quantity"
