"""Nothing earlier is lost: settings that come back find their results, or go on from where they were."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from small_project import CELLS, ROWS, Project, checked

from bflp.settings.read import laid

FAST, OTHER = {"learning_rate": 0.05}, {"learning_rate": 0.01}


def contents(project: Project) -> dict[str, bytes]:
    """Results, models and evaluations."""
    folders = (project.results / name for name in ("cells", "evaluations"))
    return {
        str(path.relative_to(project.results)): path.read_bytes()
        for folder in folders
        for path in folder.rglob("seed*")
    }


def log(project: Project, row: str) -> str:
    return (project.results / f"logs/train/tiny/iid/2/{row}/seed0.log").read_text(encoding="utf-8")


def learning_rate(project: Project, **training: Any) -> None:
    project.configure(training={**training, "local_epochs": 1, "batch_size": 20})


def test_settings_that_come_back_train_nothing(finished: Project) -> None:
    """Other settings, and back; meanwhile a run says what it replaces before it does."""
    before = contents(finished)
    learning_rate(finished, **OTHER)
    done = checked(finished.snakemake("--until", "merge"))
    assert "6 of 6 finished results are of other settings" in done.stderr.partition("rule ")[0]
    assert contents(finished).keys() == before.keys()
    assert all("done, 2 rounds" in log(finished, row) for row in ROWS)
    assert not set(contents(finished).values()) & set(before.values())
    learning_rate(finished, **FAST)
    checked(finished.snakemake("--until", "merge"))
    for row in ROWS:
        assert "put back" in log(finished, row) and "round" not in log(finished, row).replace("rounds", "")
    assert contents(finished) == before
    assert finished.work() == {}
    # A cell takes no longer than a program takes to start: torch is not imported.
    finished.result("FED/none").unlink()
    began = time.process_time(), os.times().children_user
    checked(finished.train("FED/none"))
    assert os.times().children_user - began[1] < 2


# An algorithm, a network and a split of a person's own.
OWN = {
    "mine.py": "from bflp.engine.local import Local\n\ndef local(model, server, client, facts, settings):\n"
    "    return Local(pull=0.1, anchor=model)\n",
    "net.py": "from torch import nn\n\ndef build(image_shape, labels, width=4):\n"
    "    return nn.Sequential(nn.Flatten(), nn.Linear(256, width), nn.ReLU(), nn.Linear(width, labels))\n",
    "halves.py": "import numpy as np\n\ndef split(labels, clients, settings, generator):\n"
    "    return np.array_split(generator.permutation(len(labels)), clients)\n",
}


def test_own_files_may_move(tmp_path: Path) -> None:
    """Their content counts, and no result is of their path."""
    project = Project.make(tmp_path)

    def at(folder: str) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        for name, content in OWN.items():
            (tmp_path / folder / name).write_text(content, encoding="utf-8")
        project.configure(
            grid={"partitions": ["halves"], "models": ["MINE"]},
            partitions={"halves": {"strategy": "file", "file": f"{folder}/halves.py"}},
            models={"MINE": {"posterior": "none", "algorithm": {"file": f"{folder}/mine.py"}}},
            network={"file": f"{folder}/net.py", "width": 6},
        )

    at("here")
    checked(project.snakemake("--until", "merge"))
    before = contents(project)
    at("there")
    shutil.rmtree(tmp_path / "here")
    checked(project.bflp("verify", "--configfile", "small.yaml"))
    checked(project.snakemake("--until", "merge"))
    said = (project.results / "logs/train/tiny/halves/2/MINE/none/seed0.log").read_text(encoding="utf-8")
    assert "put back" in said
    now, name = contents(project), "cells/tiny/halves/2/MINE/none/seed0.json"
    moved = [json.loads(each.pop(name)) for each in (before, now)]
    assert now == before
    was, now_is = ({key: each[key] for key in each if key != "environment"} for each in moved)
    assert json.loads(json.dumps(was).replace("here/", "there/")) == now_is
    load = f"import bflp; print(bflp.load({str(project.results / name)!r}).module())"
    assert "out_features=6" in checked(project.python("-c", load)).stdout
    assert "1 up to date" in checked(project.bflp("why", "--configfile", "small.yaml")).stdout
    checked(project.bflp("verify", "--configfile", "small.yaml"))
    # Another content does.
    at("elsewhere")
    (tmp_path / "elsewhere/mine.py").write_text(OWN["mine.py"].replace("0.1", "0.2"), encoding="utf-8")
    said = checked(project.bflp("why", "--configfile", "small.yaml")).stdout
    assert "1 cell: its result is of other code (elsewhere/mine.py, here/mine.py)" in said
    checked(project.snakemake("--until", "merge"))
    model = name.replace("json", "safetensors")
    assert contents(project).keys() == {*now, name} and contents(project)[model] != now[model]


def test_clients_that_are_kept_later_cost_a_training_and_change_no_number(finished: Project) -> None:
    models = {path: path.read_bytes() for path in finished.results.glob("cells/**/*.safetensors")}
    finished.configure(keep_clients=True)
    assert finished.work() == {"train": 6, "evaluate": 1, "merge": 1}
    unkept = "a training that did not keep its clients' models (keep_clients)"
    assert f"6 cells: its result is of {unkept}" in checked(finished.bflp("why", "--configfile", "small.yaml")).stdout
    done = checked(finished.snakemake("--until", "merge"))
    assert f"FED/none/seed0: {unkept}" in done.stderr.partition("rule ")[0]
    assert "trains again, since the models of its last round's clients were not kept" in log(finished, "FVBA/EAA")
    assert {path: path.read_bytes() for path in models} == models
    assert len(list(finished.results.glob("cells/**/*.clients.safetensors"))) == 6
    assert finished.work() == {}
    checked(finished.bflp("verify", "--configfile", "small.yaml"))
    # Switching it off trains nothing, and asking for what they are good for evaluates; one that is gone is put back.
    finished.configure()
    assert "train" not in finished.work()
    clients = finished.result("FVBA/EAA").with_suffix(".clients.safetensors")
    content = clients.read_bytes()
    clients.unlink()
    finished.configure(keep_clients=True, evaluation={"final": {"ensemble": {"beta": 0.5}}})
    assert finished.work() == {"train": 1, "evaluate": 1, "merge": 1}
    checked(finished.snakemake("--until", "merge"))
    assert "put back" in log(finished, "FVBA/EAA") and clients.read_bytes() == content
    ensemble = json.loads(finished.evaluation("FVBA/EAA").read_text(encoding="utf-8"))["final"]
    assert ensemble["ensemble_beta"] == 0.5 and finished.work() == {}


def test_an_overlay_that_was_forgotten_says_so_and_loses_nothing(finished: Project) -> None:
    """`config.yaml` and the overlay name the same results."""
    before = contents(finished)
    overlay = (finished.folder / "small.yaml").read_text(encoding="utf-8")
    learning_rate(finished, **OTHER)
    paper, other = (
        yaml.safe_load((finished.folder / name).read_text(encoding="utf-8")) for name in ("config.yaml", "small.yaml")
    )
    (finished.folder / "config.yaml").write_text(yaml.safe_dump(laid(paper, other)), encoding="utf-8")
    done = checked(finished.snakemake("--until", "train", configfile=None))
    said = done.stdout + done.stderr
    assert "6 of 6 finished results are of other settings, code or data and will be replaced" in said
    assert said.index("will be replaced") < said.index("rule train")
    (finished.folder / "small.yaml").write_text(overlay, encoding="utf-8")
    checked(finished.snakemake("--until", "train"))
    assert {name: content for name, content in contents(finished).items() if name.startswith("cells")} == {
        name: content for name, content in before.items() if name.startswith("cells")
    }


# A rule that waits in the third round of training until it may go on.
RULE = """
import time
from pathlib import Path

def aggregate(means, log_variances, weights, settings, generator):
    if means.shape[1] > 100:
        with Path("rounds").open("a") as file:
            file.write("x")
        while len(Path("rounds").read_text()) >= 3 and not Path("go on").exists():
            time.sleep(0.02)
    return weights @ means, weights @ log_variances
"""


def waiting(folder: Path, **training: Any) -> Project:
    project = Project.make(folder)
    (folder / "waiting.py").write_text(RULE, encoding="utf-8")
    configure_waiting(project, **training)
    return project


def configure_waiting(project: Project, **training: Any) -> None:
    project.configure(
        grid={"models": ["FVBA"], "aggregators": ["WAIT"]},
        aggregators={"WAIT": {"file": "waiting.py"}},
        setups={2: {"fraction": 1.0, "rounds": 5}},
        training={**training, "local_epochs": 1, "batch_size": 20},
        checkpoint_seconds=100000,
    )


def interrupted(project: Project) -> None:
    """Start the workflow and end it with SIGTERM to its cell in the third round."""
    (project.folder / "rounds").unlink(missing_ok=True)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--until", "train", "--configfile", "small.yaml"]
    run = subprocess.Popen(command, cwd=project.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        rounds = project.folder / "rounds"
        while not (rounds.exists() and len(rounds.read_text()) == 3):
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        lock = next((project.results / "progress").rglob("*.lock")).read_text(encoding="utf-8")
        os.kill(int(lock.split()[1]), signal.SIGTERM)
        assert run.wait(60) == 1
    finally:
        run.kill()
        run.wait()


def test_a_cell_that_was_interrupted_goes_on_after_other_settings(tmp_path: Path) -> None:
    project = waiting(tmp_path / "interrupted", **FAST)
    interrupted(project)
    configure_waiting(project, **OTHER)
    interrupted(project)
    configure_waiting(project, **FAST)
    (project.folder / "go on").touch()
    (project.folder / "rounds").unlink()
    checked(project.snakemake("--until", "train"))
    assert "goes on after round 2" in log(project, "FVBA/WAIT")
    undisturbed = waiting(tmp_path / "undisturbed", **FAST)
    (undisturbed.folder / "go on").touch()
    checked(undisturbed.snakemake("--until", "train"))
    ours, theirs = (
        json.loads((each.folder / CELLS / "FVBA/WAIT/seed0.json").read_text(encoding="utf-8"))
        for each in (project, undisturbed)
    )
    assert ours["environment"]["resumed_at"] == [2]
    for part in ("environment", "timing"):
        ours.pop(part), theirs.pop(part)
    assert ours == theirs


def test_what_left_the_grid_is_listed(finished: Project) -> None:
    """A set-up that is dropped: its table and figures are not the grid's any more."""
    finished.configure(grid={"clients": ["two"]}, setups={"two": {"clients": 2, "fraction": 1.0, "rounds": 2}})
    done = checked(finished.bflp("verify", "--configfile", "small.yaml", "--all"))
    for file in ("tables/results2.md", "figures/tiny/iid/2/reliability.pdf", "cells/tiny/iid/2/FED/none/seed0.json"):
        assert f"{file}: belongs to nothing in this config" in done.stdout


def test_evaluations_alone_are_made_again(finished: Project) -> None:
    """Other bins, a set out of distribution and a new metric: tables and figures of them, and nothing is trained."""
    models = {path: path.read_bytes() for path in finished.results.glob("cells/**/*.*")}
    metric = (finished.folder / "bflp/engine/metrics/brier.py").read_text(encoding="utf-8")
    new = metric.replace('"Brier", "", False, 2', '"Doubled", "", False, 2').replace(
        "return float(", "return 2 * float("
    )
    (finished.folder / "bflp/engine/metrics/doubled.py").write_text(new, encoding="utf-8")
    finished.configure(
        datasets={"other": {"source": "tiny.npz"}},
        evaluation={"ece_bins": 15, "out_of_distribution": "other"},
        tables={"metrics": ["accuracy", "ece", "ood_auroc", "doubled"]},
    )
    assert finished.work() == {"prepare": 1, "evaluate": 1, "merge": 1}
    checked(finished.snakemake())
    assert {path: path.read_bytes() for path in finished.results.glob("cells/**/*.*")} == models
    final = json.loads(finished.evaluation("FVBWA/PPA").read_text(encoding="utf-8"))
    assert len(final["reliability"]["counts"]) == 15
    assert final["final"]["doubled"] == 2 * final["final"]["brier"]
    # The test images themselves, which a network without noise cannot tell apart.
    without_noise = json.loads(finished.evaluation("FED/none").read_text(encoding="utf-8"))
    assert abs(without_noise["final"]["ood_auroc"] - 50) < 1e-6
    table = (finished.results / "tables/results2.md").read_text(encoding="utf-8")
    assert "Doubled" in table and f"{final['final']['doubled']:.2f}" in table
    # The curves were measured with the bins of then.
    assert "10 bins" in (finished.results / "figures/tiny/iid/2/learning_curves.svg").read_text(encoding="utf-8")
    assert finished.work() == {}
