"""The grid: its cells and their files, and that each job says what its result depends on and nothing else."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fabricated_run
import numpy as np
import pytest
import yaml

from bflp.errors import ConfigError
from bflp.grid.cell import Cell
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.runtime.inputs import Assignment, checked
from bflp.settings.schema import Settings, load

PROJECT = Path(__file__).resolve().parents[2]
PAPER: dict[str, Any] = yaml.safe_load((PROJECT / "config.yaml").read_text(encoding="utf-8"))
JOBS = {cell: Plan(Settings.parse(PAPER)).job(cell) for cell in Plan(Settings.parse(PAPER)).cells}


def plan_with(path: tuple[Any, ...], value: Any) -> Plan:
    """The plan of the paper's config with one value set."""
    config = copy.deepcopy(PAPER)
    place = config
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return Plan(Settings.parse(config))


def test_the_paper_has_720_cells() -> None:
    cells = list(JOBS)
    assert len(cells) == len(set(cells)) == 720
    assert Counter(cell.dataset for cell in cells) == {"fmnist": 240, "cifar10": 240, "svhn": 240}
    assert Counter(cell.seed for cell in cells) == dict.fromkeys(range(5), 144)
    plan = Plan(Settings.parse(PAPER))
    rules = ["EAA", "GAA", "AALV", "PPA", "CF"]
    assert plan.rows == [
        ("FED", "none"),
        ("FEDAVG", "none"),
        *(("FVBA", rule) for rule in rules),
        *(("FVBWA", rule) for rule in rules),
    ]
    files = {plan.paths.result(cell) for cell in cells}
    assert len(files) == 720
    assert Path("results/cells/svhn/noniid/100/FVBWA/CF/seed4.json") in files
    assert Path("results/cells/fmnist/iid/10/FED/none/seed0.json") in files
    assert len({plan.partition_file(cell) for cell in cells}) == 60


def test_cells_read_and_write_themselves() -> None:
    for cell in JOBS:
        assert Cell.parse(str(cell)) == cell
        assert Cell(**cell.as_dict()) == cell


@pytest.mark.parametrize(
    "text",
    ["", "fmnist", "a/b/c/d/seed0", "a/b/1/d/e/seed", "a/b/1/d/e/seedx", "a/b/1/d/e/f/seed0", "a/b/1/d/e/7"],
)
def test_what_is_no_cell(text: str) -> None:
    with pytest.raises(ConfigError, match="must be dataset/partition/clients/model/aggregator/seedN"):
        Cell.parse(text)


def of(**coordinates: Any) -> Callable[[Cell], bool]:
    """Whether a cell has these coordinates; a tuple stands for any of its values."""
    return lambda cell: all(
        getattr(cell, name) in (value if isinstance(value, tuple) else (value,)) for name, value in coordinates.items()
    )


def none(cell: Cell) -> bool:
    return False


@pytest.mark.parametrize(
    ("path", "value", "concerned"),
    [
        (("aggregators", "PPA"), {"population": 500}, of(aggregator="PPA")),
        (("models", "FVBA"), {"training": {"momentum": 0.5}}, of(model="FVBA")),
        (("aggregation",), "reference", of(aggregator=("EAA", "GAA", "PPA"))),
        (("evaluation", "monte_carlo_samples"), 5, of(model=("FVBA", "FVBWA"))),
        (("posterior", "prior", "standard_deviation"), 0.5, of(model=("FVBA", "FVBWA"))),
        (("posterior", "log_variance", "initial"), -7, of(model=("FVBA", "FVBWA"))),
        (("posterior", "log_variance", "enforce"), "project", of(model=("FVBA", "FVBWA"))),
        (("evaluation", "every"), 5, of()),
        (("training", "learning_rate"), 0.1, of()),
        (("training", "local_epochs"), 1, of()),
        (("setups", 100, "rounds"), 5, of(clients="100")),
        (("setups", 10, "fraction"), 0.5, of(clients="10")),
        (("partitions", "noniid", "alpha"), 0.1, of(partition="noniid")),
        (("datasets", "cifar10"), {"augment": None}, of(dataset="cifar10")),
        (("datasets", "svhn"), {"augment": {"crop_padding": 2}}, of(dataset="svhn")),
        # How, where and what is shown: never a reason to train again.
        (("processes",), 3, none),
        (("device",), "cpu", none),
        (("checkpoint_seconds",), 60, none),
        (("cells_per_gpu",), 2, none),
        (("on_divergence",), "record", none),
        (("results_dir",), "elsewhere", none),
        (("data_dir",), "elsewhere", none),
        (("grid", "seeds"), [0, 1, 2, 3, 4, 5], none),
        (("grid", "aggregators"), ["CF", "PPA", "AALV", "GAA", "EAA"], none),
        (("setups", 1000), {"fraction": 0.1, "rounds": 5}, none),
        (("partitions", "other"), {"strategy": "labels", "labels_per_client": 2}, none),
        # What is said of the final model: evaluated again, not trained.
        (("evaluation", "ece_bins"), 15, none),
        (("evaluation", "final"), {"monte_carlo_samples": 50}, none),
        (("datasets", "fmnist"), {"out_of_distribution": "mnist"}, none),
        (("evaluation", "keep_predictions"), True, none),
        # The same values, written otherwise.
        (("training", "learning_rate"), "1e-2", none),
        (("datasets", "cifar10"), {"augment": {"crop_padding": 4, "flip_probability": 0.5}}, none),
    ],
)
def test_a_changed_setting_concerns_the_cells_that_read_it(
    path: tuple[Any, ...], value: Any, concerned: Callable[[Cell], bool]
) -> None:
    plan = plan_with(path, value)
    changed = {cell for cell in JOBS if plan.job(cell) != JOBS[cell]}
    assert changed == {cell for cell in JOBS if concerned(cell)}


def test_two_swapped_values_are_another_job() -> None:
    # Snakemake compares params as a set, in which a swap would go unnoticed; one string it compares whole.
    plan = plan_with(("training", "momentum"), PAPER["training"]["learning_rate"])
    config = plan.settings.model_dump()
    config["training"]["learning_rate"] = PAPER["training"]["momentum"]
    swapped = Plan(Settings.parse(config))
    assert all(swapped.job(cell) != JOBS[cell] for cell in JOBS)


def test_a_job_is_canonical_json() -> None:
    for text in JOBS.values():
        job = json.loads(text)
        assert json.dumps(job, sort_keys=True, separators=(",", ":")) == text
        assert {"cell", "settings", "fingerprint"} <= set(job)


def test_the_identity_changes_with_any_job() -> None:
    same = Plan(Settings.parse(PAPER)).identity()
    assert plan_with(("processes",), 3).identity() == same
    assert plan_with(("aggregators", "PPA"), {"population": 500}).identity() != same
    assert plan_with(("grid", "seeds"), [0, 1, 2, 3]).identity() != same


def test_how_final_models_are_evaluated_is_in_no_job_but_in_the_evaluations() -> None:
    plan = Plan(Settings.parse(PAPER))
    before = {cell: plan.evaluation_of(cell) for cell in plan.cells}
    assert plan_with(("evaluation", "ece_bins"), 15).identity() != plan.identity()
    cases: list[tuple[tuple[Any, ...], Any, Callable[[Cell], bool]]] = [
        (("evaluation", "ece_bins"), 15, of()),
        (("evaluation", "final"), {"monte_carlo_samples": 50}, of(model=("FVBA", "FVBWA"))),
        (("evaluation", "keep_predictions"), True, of()),
        (("datasets", "fmnist"), {"out_of_distribution": "mnist"}, of(dataset="fmnist")),
        (("training", "learning_rate"), 0.5, none),
        (("tables",), {"metrics": ["brier"]}, none),
    ]
    for path, value, concerned in cases:
        other = plan_with(path, value)
        changed = {cell for cell in plan.cells if other.evaluation_of(cell) != before[cell]}
        assert changed == {cell for cell in plan.cells if concerned(cell)}, path


def test_tables_and_figures_are_made_again_for_what_they_show() -> None:
    def jobs(plan: Plan) -> tuple[str, str]:
        return plan.summary_job("bflp.rng"), plan.figures_job(("bflp.rng",))

    before = jobs(Plan(Settings.parse(PAPER)))
    for path, value, tables, figures in [
        (("grid", "seeds"), [0, 1], True, True),
        (("grid", "aggregators"), ["EAA"], True, True),
        (("setups", 10, "fraction"), 0.5, True, False),
        (("tables",), {"metrics": ["brier"]}, True, False),
        (("statistics",), {"reference": "FED"}, False, False),
        (("processes",), 3, False, False),
    ]:
        found = jobs(plan_with(path, value))
        assert (found[0] != before[0], found[1] != before[1]) == (tables, figures), path
    # The reference row counts where differences to it are marked.
    marked = {**PAPER, "tables": {"mark_differences": True}}
    rows = ({"reference": row} for row in ("FED", "FEDAVG"))
    assert len({jobs(Plan(Settings.parse({**marked, "statistics": row})))[0] for row in rows}) == 2


@pytest.mark.slow
def test_jobs_are_the_same_in_every_process() -> None:
    code = (
        "import hashlib, pathlib; from bflp.settings.schema import load; from bflp.grid.plan import Plan;"
        "plan = Plan(load([pathlib.Path('config.yaml')]));"
        "texts = [*map(plan.job, plan.cells), plan.prepare_job('svhn'), plan.summary_job('bflp.reporting.tables'),"
        " plan.partition_job('fmnist', 'noniid', 10, 0)];"
        "print(hashlib.sha256(''.join(texts).encode()).hexdigest())"
    )
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("0", "1", "4242")]
    running = [
        subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True)
        for environment in environments
    ]
    hashes = [process.communicate()[0].strip() for process in running]
    assert len(hashes[0]) == 64
    assert len(set(hashes)) == 1


def test_a_partition_depends_on_its_own_coordinates_and_settings() -> None:
    plan = Plan(Settings.parse(PAPER))
    job = plan.partition_job("fmnist", "noniid", 10, 0)
    others = [
        ("svhn", "noniid", 10, 0),
        ("fmnist", "iid", 10, 0),
        ("fmnist", "noniid", 100, 0),
        ("fmnist", "noniid", 10, 1),
    ]
    assert len({job, *(plan.partition_job(*other) for other in others)}) == 5
    assert plan_with(("partitions", "noniid", "alpha"), 1.0).partition_job("fmnist", "noniid", 10, 0) != job
    assert plan_with(("training", "learning_rate"), 1.0).partition_job("fmnist", "noniid", 10, 0) == job


def test_preparing_depends_on_the_sources_content_not_on_its_name_or_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)

    def write(name: str, generator: np.random.Generator) -> None:
        images = generator.integers(0, 256, (20, 16, 16), dtype=np.uint8)
        labels = np.arange(20) % 2
        np.savez(name, train_images=images, train_labels=labels, test_images=images, test_labels=labels)

    def jobs(source: str) -> tuple[str, str]:
        config = {**PAPER, "grid": {**PAPER["grid"], "datasets": ["mine"]}, "datasets": {"mine": {"source": source}}}
        config["setups"] = {10: PAPER["setups"][10], 100: PAPER["setups"][100]}
        config["grid"] |= {"clients": [10], "partitions": ["iid"]}
        plan = Plan(Settings.parse(config))
        return plan.prepare_job("mine"), plan.identity()

    write("first.npz", generator)
    before = jobs("first.npz")
    os.utime("first.npz", (0, 0))
    assert jobs("first.npz") == before
    Path("first.npz").rename("second.npz")
    assert jobs("second.npz") == before
    write("second.npz", generator)
    assert all(new != old for new, old in zip(jobs("second.npz"), before, strict=True))


def test_a_partition_with_a_seed_of_its_own_is_the_same_for_all_seeds(tmp_path: Path) -> None:
    """One file, which the cells of both seeds take for theirs; without it there are two."""
    for own, files in ((7, ["seed7.npz"]), (None, ["seed0.npz", "seed1.npz"])):
        folder = tmp_path / str(own)
        top = {"partitions": {"iid": {"seed": own}}}
        plan = fabricated_run.plan(folder, 100, top=top, partitions=["iid"], models=["FED"], seeds=[0, 1])
        fabricated_run.make(plan, wanted=lambda cell: False)
        assert sorted({plan.partition_file(cell).name for cell in plan.cells}) == files
        for cell in plan.cells:
            assignment = Assignment(Job.parse(plan.job(cell)), plan.paths.data("synthetic"), plan.partition_file(cell))
            checked(assignment)
            assert assignment.settings().seed == cell.seed
            assert json.loads(plan.partition_job_of(cell))["seed"] == (cell.seed if own is None else own)


def test_round_times_are_of_the_papers_cells_or_of_what_the_grid_has() -> None:
    """config.yaml lies below every grid: of one without CIFAR-10 nothing else is downloaded."""
    paper, demo = PROJECT / "config.yaml", PROJECT / "examples" / "demo.yaml"
    for files, block in (([paper], ("cifar10", "iid", "100")), ([paper, demo], ("fmnist-mini", "iid", "10"))):
        assert {cell.block for cell, _ in Plan(load(files)).round_time_cells()} == {block}
