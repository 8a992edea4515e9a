"""The real workflow on a small grid: what it makes, and what it does and does not do again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter

import pandas as pd
from finished_grid import COPIED
from small_project import ROWS, Project, checked

from bflp.results.evaluation import Evaluation
from bflp.results.file import write
from bflp.results.result import Result

Finished = tuple[Project, subprocess.CompletedProcess[str]]


def seeds(number: int, rows: list[str] = ROWS) -> set[str]:
    return {f"{row}/seed{number}" for row in rows}


def add_seed(project: Project, seed: int) -> None:
    """Results of another seed, copied from seed 0: as if brought from another machine, unknown to Snakemake."""
    for suffix in (".npz", ".csv"):
        partition = project.results / "partitions/tiny/iid/2/seed0"
        shutil.copy(partition.with_suffix(suffix), partition.with_name(f"seed{seed}").with_suffix(suffix))
    for row in ROWS:
        for kind, file in ((Result, project.result), (Evaluation, project.evaluation)):
            content = json.loads(file(row).read_text(encoding="utf-8"))
            content["environment"].pop("checksum")
            content["cell"]["seed"] = seed
            write(file(row, seed), kind.model_validate(content))
        shutil.copy(
            project.result(row).with_suffix(".safetensors"), project.result(row, seed).with_suffix(".safetensors")
        )


# One run, looked at ---------------------------------------------------------------------------------------------------


def test_it_runs_through(finished_run: Finished) -> None:
    project, done = finished_run
    checked(done)
    assert "Traceback" not in done.stdout + done.stderr
    folder = project.results
    cells = {str(path.relative_to(folder / "cells")) for path in folder.glob("cells/**/*.json")}
    assert cells == {f"tiny/iid/2/{row}/seed0.json" for row in ROWS}
    assert all(project.result(row).with_suffix(".safetensors").exists() for row in ROWS)
    assert {path.name for path in folder.glob("tables/*")} >= {
        f"{name}.{kind}" for name in ("results2", "spread", "datasets") for kind in ("tex", "md")
    }
    frame = pd.read_csv(folder / "results.csv", keep_default_na=False, na_values=[""])
    assert [f"{row.model}/{row.aggregator}" for row in frame.itertuples()] == ROWS
    assert frame["rounds"].tolist() == [2] * 6
    assert frame["accuracy"].between(0, 100).all()
    assert frame["spread"].notna().tolist() == [False] * 2 + [True] * 4
    # Nothing half-written stays behind; what is kept is a result, its model, evaluation and checkpoint for each cell.
    assert not list(folder.glob("**/*.tmp"))
    kept = Counter(path.name.partition(".")[2] for path in (folder / "kept").iterdir())
    assert kept == dict.fromkeys(["json", "safetensors", "evaluation.json", "checkpoint.safetensors"], 6)
    # Nor anything where a folder's name was not quoted.
    made = {path.name for path in project.folder.iterdir()} - {*COPIED, "tiny.npz", "small.yaml", ".snakemake"}
    assert made == {project.results.name, project.data.name}


def test_results_say_what_they_are(finished_run: Finished) -> None:
    project, _ = finished_run
    result = json.loads(project.result("FVBWA/PPA").read_text(encoding="utf-8"))
    assert result["cell"] == {
        "dataset": "tiny", "partition": "iid", "clients": "2", "model": "FVBWA", "aggregator": "PPA", "seed": 0,
    }  # fmt: skip
    assert result["settings"]["training"]["learning_rate"] == 0.05
    assert result["settings"]["rule"] == {"population": 1000}
    assert not {"processes", "device", "results_dir"} & set(result["settings"])
    assert result["environment"]["processes"] == 1
    assert [entry["round"] for entry in result["rounds"]] == [1, 2]
    evaluation = json.loads(project.evaluation("FVBWA/PPA").read_text(encoding="utf-8"))
    assert {key: evaluation["final"][key] for key in ("accuracy", "ece", "nll", "spread")} == {
        key: value for key, value in result["rounds"][-1].items() if key != "round"
    }
    assert len(result["timing"]["train_seconds"]) == 2
    assert result["data"]["dataset"] == json.loads((project.data / "tiny.json").read_text())["sha256"]


def test_every_job_has_a_log_and_a_benchmark(finished_run: Finished) -> None:
    folder = finished_run[0].results
    logs = {str(path.relative_to(folder / "logs").with_suffix("")) for path in folder.glob("logs/**/*.log")}
    times = {
        str(path.relative_to(folder / "benchmarks").with_suffix("")) for path in folder.glob("benchmarks/**/*.tsv")
    }
    cells = {f"train/tiny/iid/2/{row}/seed0" for row in ROWS}
    assert logs == times
    assert logs >= {"prepare/tiny", "partition/tiny/iid/2/seed0", "merge", "tables", *cells}
    for row in ROWS:
        text = (folder / f"logs/train/tiny/iid/2/{row}/seed0.log").read_text(encoding="utf-8")
        assert "done, 2 rounds, accuracy" in text
        assert "warning" not in text.lower()


# Nothing again --------------------------------------------------------------------------------------------------------


def test_a_second_run_does_nothing(finished_run: Finished) -> None:
    assert finished_run[0].planned() == {}


def test_nothing_runs_again_after_touching_moving_and_pacing(finished: Project) -> None:
    for path in finished.folder.rglob("*"):
        if path.is_file() and ".snakemake" not in path.parts:
            os.utime(path)
    assert finished.planned() == {}
    (finished.folder / "tiny.npz").rename(finished.folder / "moved.npz")
    finished.configure(datasets={"tiny": {"source": "moved.npz"}}, processes=3, device="auto", checkpoint_seconds=9)
    moved = Project(finished.folder.with_name("another name"))
    finished.folder.rename(moved.folder)
    assert moved.work() == {}


# As much again as was changed -----------------------------------------------------------------------------------------


def test_an_added_seed_runs_its_cells_and_a_removed_one_none(finished: Project) -> None:
    finished.configure(grid={"seeds": [0, 1]})
    assert finished.work() == {"partition": 1, "train": 6, "evaluate": 1, "merge": 1}
    assert finished.planned_cells() == seeds(1)
    # With results of the second seed there is nothing to train.
    add_seed(finished, 1)
    assert finished.work() == {"evaluate": 1, "merge": 1}
    checked(finished.snakemake("--until", "tables"))
    table = (finished.results / "tables/results2.md").read_text(encoding="utf-8")
    assert "± 0.00" in table
    assert finished.work() == {}
    finished.configure(grid={"seeds": [0]})
    assert finished.work() == {"evaluate": 1, "merge": 1}


# Half a grid, and wrong results ---------------------------------------------------------------------------------------


def test_tables_of_what_has_run_so_far(finished: Project) -> None:
    for row in ("FEDAVG/none", "FVBWA/EAA"):
        finished.result(row).unlink()
    finished.result("FVBA/PPA").write_text("{", encoding="utf-8")
    done = checked(finished.bflp("tables", "--configfile", "small.yaml", "--partial", "--show"))
    assert "3 of 6 cells have a result" in done.stdout
    assert str(finished.result("FVBA/PPA").relative_to(finished.folder)) in done.stderr
    shown = done.stdout.partition("Spread")[0].partition("2 clients")[0]
    for text in (shown, (finished.results / "tables_partial/results2.md").read_text(encoding="utf-8")):
        rows = {
            tuple(cell.strip() for cell in line.split("|")[2:4]): line for line in text.splitlines() if "IID" in line
        }
        missing = {row for row, line in rows.items() if line.count("—") == 3}
        assert missing == {("FEDAVG", "N/A"), ("FVBWA", "EAA"), ("FVBA", "PPA")}
    latex = (finished.results / "tables_partial/results2.tex").read_text(encoding="utf-8")
    assert latex.count("-- & -- & --") == 3


def test_tables_of_a_grid_that_has_not_run(fresh: Project) -> None:
    done = checked(fresh.bflp("tables", "--configfile", "small.yaml", "--partial", "--show"))
    assert "0 of 6 cells have a result" in done.stdout
    done = fresh.bflp("tables", "--configfile", "small.yaml")
    assert done.returncode == 1
    assert "results.csv" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_result_is_refused(finished: Project) -> None:
    path, before = finished.result("FVBA/EAA"), (finished.results / "results.csv").read_bytes()
    path.write_text('{"accuracy": 100}', encoding="utf-8")
    done = finished.snakemake()
    assert done.returncode == 1
    name = re.escape(str(path.relative_to(finished.folder)))
    assert re.search(rf"{name} is not the result of a cell: delete it", done.stdout + done.stderr)
    # Nothing is made of it, and what was made of the results as they were stays.
    assert (finished.results / "results.csv").read_bytes() == before


def refused_as_stale(project: Project) -> list[str]:
    """The results that merging refuses, as rows."""
    done = project.snakemake()
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "are not what the present settings, code and data would give" in text
    return sorted(set(re.findall(r"^ *tiny/iid/2/(\S+)/seed0: other", text, re.MULTILINE)))


def test_stale_results_are_refused_when_snakemakes_records_are_lost(finished: Project) -> None:
    shutil.rmtree(finished.folder / ".snakemake")
    assert finished.planned() == {}  # nothing is wrong with them
    finished.configure(aggregators={"PPA": {"population": 50}})
    assert refused_as_stale(finished) == ["FVBA/PPA", "FVBWA/PPA"]
    assert not (finished.results / "results.csv").exists()
