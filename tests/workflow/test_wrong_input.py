"""Mistakes of a person: one line that names the key or the file, before anything runs, and no traceback."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_project import Project, one_error, source_arrays

Change = Callable[[Project], Any]


def config(**sections: Any) -> Change:
    return lambda project: project.configure(**sections)


def text(content: str) -> Change:
    return lambda project: (project.folder / "small.yaml").write_text(content, encoding="utf-8")


def paper_text(content: str) -> Change:
    """Added to config.yaml itself."""

    def change(project: Project) -> None:
        with (project.folder / "config.yaml").open("a", encoding="utf-8") as file:
            file.write(content)

    return change


def source(**arrays: Any) -> Change:
    return lambda project: np.savez(project.folder / "tiny.npz", **{**source_arrays(), **arrays})


def truncated(project: Project) -> None:
    path = project.folder / "tiny.npz"
    path.write_bytes(path.read_bytes()[:-100])


def clients(number: int) -> dict[str, Any]:
    return {"grid": {"clients": [number]}, "setups": {number: {"fraction": 1, "rounds": 1}}}


# What is wrong, and the words that must be said. Of mistakes in settings, which tests/settings has, one of each kind.
MISTAKES: dict[str, tuple[Change, list[str]]] = {
    "unknown nested key": (config(training={"learnign_rate": 1}), ["training.learnign_rate", "'learning_rate'"]),
    "misspelt model": (config(grid={"models": ["FEDAGV"]}), ["grid.models", "did you mean 'FEDAVG'?"]),
    "misspelt reference": (
        config(statistics={"reference": "FVBA EEA"}),
        ["statistics.reference: there is no row 'FVBA EEA' in the grid - did you mean 'FVBA EAA'?"],
    ),
    "negative learning rate": (config(training={"learning_rate": -1}), ["training.learning_rate", "is -1"]),
    "a command in a path": (config(results_dir="$(touch harm)"), ["results_dir", "must be a path"]),
    "more clients than samples": (config(**clients(61)), ["61 clients are more than the 60 training samples of tiny"]),
    "key twice": (text("device: cpu\ndevice: auto\n"), ["small.yaml, line 2", "'device' is there twice"]),
    "broken config.yaml": (paper_text("\ngrid: [1, 2\nfoo: {\n"), ["config.yaml, line ", "not valid YAML"]),
    "missing source": (lambda project: (project.folder / "tiny.npz").unlink(), ["tiny.npz", "there is no such file"]),
    "truncated source": (truncated, ["tiny.npz", "is not a whole .npz file"]),
    "source of text": (
        lambda project: (project.folder / "tiny.npz").write_text("images"),
        ["tiny.npz", "is not a whole .npz file"],
    ),
    "float images": (source(train_images=np.zeros((60, 16, 16))), ["tiny.npz", "train_images has dtype float64"]),
    "labels out of range": (source(test_labels=np.full(30, 9)), ["tiny.npz", "test_labels holds 9: out of range"]),
    "NaN labels": (source(train_labels=np.full(60, np.nan)), ["tiny.npz", "train_labels has dtype float64"]),
    "object labels": (source(train_labels=np.array([{}] * 60)), ["tiny.npz", "train_labels has dtype object"]),
}
# What Snakemake itself says of config files: one clear message, which does not name the file.
SNAKEMAKES_OWN: dict[str, tuple[Change, list[str]]] = {
    "broken YAML": (text("grid: [1, 2\nfoo: {\n"), ["Config file is not valid JSON or YAML"]),
    "no mapping": (text("- 1\n"), ["Config file must be given as JSON or YAML with keys at top level"]),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Project]:
    """A project for each mistake; what no test changes is shared."""
    base = Project.make(tmp_path_factory.mktemp("mistakes") / "base")
    projects = {}
    for name, (change, _) in {**MISTAKES, **SNAKEMAKES_OWN}.items():
        folder = base.folder.parent / name
        folder.mkdir()
        for path in base.folder.iterdir():
            if path.is_dir():
                (folder / path.name).symlink_to(path)
            else:
                shutil.copy(path, folder / path.name)
        projects[name] = Project(folder)
        change(projects[name])
    return projects


def in_parallel(run: Callable[[str], Any], names: Any) -> dict[str, Any]:
    names = list(names)
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(run, names), strict=True))


def check_nothing_ran(project: Project) -> None:
    for path in (project.results, project.data, project.folder / "harm", project.folder / "results"):
        assert not path.exists()


# Programs by hand find mistakes in the settings; those in a source file when it is prepared.
OF_SOURCES = {name for name in MISTAKES if "source" in name or "labels" in name or "images" in name}
WITH_SNAKEMAKE = [*(name for name in MISTAKES if name not in OF_SOURCES), "missing source", "truncated source"]
WITH_SNAKEMAKE.append("object labels")


def test_snakemake_names_mistakes_before_anything_runs(folders: dict[str, Project]) -> None:
    # Half of them in a dry run; the Snakefile is read in the same way.
    dry = set(WITH_SNAKEMAKE[::2])
    done = in_parallel(lambda name: folders[name].snakemake(*(["-n"] if name in dry else [])), WITH_SNAKEMAKE)
    for name in WITH_SNAKEMAKE:
        line = one_error(done[name])
        assert line.startswith("error: "), (name, line)
        assert all(word in line for word in MISTAKES[name][1]), (name, line)
        check_nothing_ran(folders[name])


def test_snakemakes_own_messages(folders: dict[str, Project]) -> None:
    done = in_parallel(lambda name: folders[name].snakemake(), SNAKEMAKES_OWN)
    for name, (_, words) in SNAKEMAKES_OWN.items():
        said = done[name].stdout + done[name].stderr
        assert done[name].returncode == 1
        assert "Traceback" not in said
        assert all(word in said for word in words), said
        check_nothing_ran(folders[name])


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("merge", []),
        ("tables", ["--partial"]),
        ("prepare", ["tiny"]),
        ("train", ["--cell", "tiny/iid/2/FED/none/seed0"]),
    ],
)
def test_programs_name_the_same_mistakes(folders: dict[str, Project], program: str, arguments: list[str]) -> None:
    chosen = [name for name in MISTAKES if name not in OF_SOURCES and "clients" not in name]
    # All with one program, a few with the others: they read the config in the same way.
    chosen = chosen[:: 1 if program == "merge" else 4]
    done = in_parallel(lambda name: folders[name].bflp(program, *arguments, "--configfile", "small.yaml"), chosen)
    for name in chosen:
        line = one_error(done[name])
        assert all(word in line for word in MISTAKES[name][1]), (name, line)
        check_nothing_ran(folders[name])


def test_preparing_names_what_is_wrong_with_a_source(folders: dict[str, Project]) -> None:
    done = in_parallel(lambda name: folders[name].bflp("prepare", "tiny", "--configfile", "small.yaml"), OF_SOURCES)
    assert len(OF_SOURCES) >= 7
    for name in OF_SOURCES:
        line = one_error(done[name])
        assert all(word in line for word in MISTAKES[name][1]), (name, line)
        assert not (folders[name].data / "tiny.npz").exists()


def test_broken_yaml_is_named_with_its_line_by_programs(folders: dict[str, Project]) -> None:
    line = one_error(folders["broken YAML"].bflp("merge", "--configfile", "small.yaml"))
    assert "small.yaml, line 2, column" in line
    line = one_error(folders["no mapping"].bflp("merge", "--configfile", "small.yaml"))
    assert "small.yaml must hold a mapping" in line
    line = one_error(folders["no mapping"].bflp("merge", "--configfile", "nowhere.yaml"))
    assert line == "error: there is no config file nowhere.yaml"


def test_settings_given_on_the_command_line_are_checked(fresh: Project) -> None:
    line = one_error(fresh.snakemake("-n", "--config", "processes=0"))
    assert line.startswith("error: processes: must be greater than 0")


def test_a_cell_that_is_not_in_the_grid(fresh: Project) -> None:
    for cell, words in (
        ("tiny/iid/2/FED/none/seed1", "is not in the grid of small.yaml"),
        ("tiny/iid/2/FED/EAA/seed0", "is not in the grid of small.yaml - did you mean 'tiny/iid/2/F"),
        ("tiny/iid/two/FED/none/seed0", "is not in the grid of small.yaml"),
        ("tiny/iid/2/FED/none/0", "must be dataset/partition/clients/model/aggregator/seedN"),
        ("FED", "must be dataset/partition/clients/model/aggregator/seedN"),
    ):
        assert words in one_error(fresh.bflp("train", "--configfile", "small.yaml", "--cell", cell))
    for processes in ("0", "-1"):
        done = fresh.train("FED/none", "--processes", processes)
        assert "--processes must be at least 1" in one_error(done)
    assert not fresh.results.exists()


def test_targets_that_the_config_does_not_describe(fresh: Project) -> None:
    cell = "the cell tiny/iid/{} is not one that the config describes: see grid, setups and models"
    words = {
        "cells/tiny/iid/3/FED/none/seed0.json": cell.format("3/FED/none/seed0"),
        "cells/tiny/iid/2/FED/EAA/seed0.json": cell.format("2/FED/EAA/seed0"),
        "round_time/tiny/iid/3/FED/none/seed0-processes2.json": cell.format("3/FED/none/seed0"),
        "partitions/tiny/nope/2/seed0.npz": "the partition nope is not in the config",
        "evaluated/tiny/iid/3.json": "tiny/iid/3 is not in the grid",
        "partitions/tiny/iid/two/seed0.npz": "No rule to produce",
        "round_time/tiny/iid/2/FED/none/seed0-processes0.json": "No rule to produce",
    }
    done = in_parallel(lambda target: fresh.snakemake("-n", str(Path(fresh.results.name, target))), words)
    for target, said in words.items():
        text = done[target].stdout + done[target].stderr
        assert done[target].returncode == 1 and said in text and "Traceback" not in text, text


def test_programs_say_what_arguments_they_lack(fresh: Project) -> None:
    for arguments, words in (
        (["train"], "one of the arguments --cell --job is required"),
        (["partition"], "--job"),
        (["prepare"], "dataset"),
        (["merge", "--unknown"], "--unknown"),
    ):
        done = fresh.bflp(*arguments)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_a_data_set_that_is_not_known(fresh: Project) -> None:
    line = one_error(fresh.bflp("prepare", "imagenet", "--configfile", "small.yaml"))
    assert "imagenet is not a built-in data set and has no source: in the config" in line


def test_images_out_of_distribution_of_another_shape(fresh: Project) -> None:
    """Of files of one's own, whose headers are read before anything runs."""
    images, labels = np.zeros((4, 3, 16, 16), np.uint8), np.arange(4)
    arrays: dict[str, Any] = {f"{split}_images": images for split in ("train", "test")}
    arrays |= {f"{split}_labels": labels for split in ("train", "test")}
    np.savez(fresh.folder / "other.npz", **arrays)
    fresh.configure(datasets={"other": {"source": "other.npz"}}, evaluation={"out_of_distribution": "other"})
    words = "out_of_distribution: images of other are 3x16x16, but those of tiny 1x16x16"
    assert words in one_error(fresh.snakemake("-n"))
    assert words in one_error(fresh.train("FED/none"))
    assert not (fresh.results / "progress").exists()


def test_a_natural_split_that_the_data_do_not_have(fresh: Project) -> None:
    natural: dict[str, Any] = {"grid": {"partitions": ["natural"]}, "partitions": {"natural": {"strategy": "natural"}}}
    fresh.configure(**natural)
    assert "natural needs `train_clients` in the source of tiny" in one_error(fresh.snakemake("-n"))
    source(train_clients=np.arange(60) % 3)(fresh)
    assert "partitions.natural: tiny comes from 3 clients, not 2" in one_error(fresh.snakemake("-n"))
    source(train_clients=np.arange(60) % 2)(fresh)
    assert fresh.planned()["partition"] == 1


def test_a_partition_that_cannot_be_drawn_is_named_before_training(fresh: Project) -> None:
    uneven = {"uneven": {"strategy": "dirichlet", "alpha": 1e-6, "min_samples": 29}}
    fresh.configure(grid={"partitions": ["uneven"], "models": ["FED"], "aggregators": []}, partitions=uneven)
    done = fresh.snakemake()
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "error: partition uneven of tiny: alpha 1e-06, 2 clients and min_samples 29 clash" in said
    assert not (fresh.results / "cells").exists()


def test_on_slurm_a_python_with_a_space_in_its_path_is_refused(fresh: Project, tmp_path: Path) -> None:
    """Before anything is submitted: the plugin does not quote it."""
    environment = tmp_path / "a space" / "venv"
    environment.parent.mkdir()
    environment.symlink_to(sys.prefix)
    python = environment / "bin" / "python"
    command = [str(python), "-m", "snakemake", "--workflow-profile", "profiles/slurm", "--configfile", "small.yaml"]
    done = subprocess.run(command, cwd=fresh.folder, capture_output=True, text=True, check=False)
    assert f"on SLURM jobs cannot start {python}: its path has a space" in one_error(done)
    assert not fresh.data.exists() and not list((fresh.folder / ".snakemake").glob("locks/*"))
