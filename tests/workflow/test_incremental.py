"""After a change exactly the cells run again that the change concerns.

What they are is written down here by hand, from what each module and setting is for.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import finished_grid
import pytest
from finished_grid import CONFIG, snakemake, would_run, write_config

from benchmarks.edits import EDITS, Edit
from benchmarks.edits import jobs as edit_jobs
from bflp import fingerprint
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.settings.read import laid, overlaid, read_file
from bflp.settings.schema import Settings

RULES = ("EAA", "GAA", "AALV", "PPA", "CF")
# The rules of which tests say whether they run; which figures and pages are made besides is no concern of theirs.
WATCHED = {"prepare", "partition", "evaluate", "merge", "tables"}
MERGING = {"merge", "tables"}
EVALUATING = MERGING | {"evaluate"}
NOTHING: tuple[set[str], set[str]] = (set(), set())
Chosen = Callable[[Cell], bool]


def every(cell: Cell) -> bool:
    return True


def none(cell: Cell) -> bool:
    return False


def of_rules(*rules: str) -> Chosen:
    return lambda cell: cell.aggregator in rules


def uneven(cell: Cell) -> bool:
    return cell.partition == "uneven"


def flipped(cell: Cell) -> bool:
    return cell.dataset == "flipped"


# Which cells' training an edit of a module concerns, by its room: the first entry that fits. What concerns no cell is
# what runs the engine, reads settings, or shows results; what only evaluates trains nothing.
FINAL_METRICS = "ace|brier|entropy|expected_entropy|macro_f1|mce|mutual_information|ood_auroc|registry"
ROOMS: list[tuple[str, Chosen]] = [
    (r"(archive|runtime|settings|grid|results|provenance|reporting|paper|cli)/.*", none),
    (r"(errors|files|fingerprint)\.py", none),
    # Converting makes the prepared files: of their cells both this and the bytes that come out count.
    (r"datasets/(?!convert|__init__).*", none),
    (rf"engine/(evaluation|fairness|evaluators/.*|metrics/({FINAL_METRICS}))\.py", none),
    # No method of this grid has these posteriors, networks and stacks.
    (
        r"engine/(ivon|laplace|stack|swag)\.py|networks/(cnn|mlp|plain|resnet20|sampled|stacked_lenet|trial|layers)\.py",
        none,
    ),
    (r"aggregators/_floored_sum\.py", of_rules("EAA", "GAA")),
    *((rf"aggregators/{rule.lower()}\.py", of_rules(rule)) for rule in RULES),
    (r"aggregators/(?!__init__).*", none),
    # Nothing but FedAvg is in this grid, which is what the engine does by itself.
    (r"algorithms/.*", none),
    (r"engine/augment\.py", flipped),
    (r"partition/(dirichlet|redraw)\.py", uneven),
    (r"partition/iid\.py", lambda cell: cell.partition == "iid"),
    (r"partition/(quantity|labels|natural|file|files)\.py", none),
    (r".*", every),
]


def expected(module: str) -> Chosen:
    """Which cells' training strings an edit of a module (a path below bflp/) changes."""
    return next(chosen for pattern, chosen in ROOMS if re.fullmatch(pattern, module))


def edit_logic(source: str) -> str:
    return f"{source}\n_EDITED = 1\n"


def edit_layout(source: str) -> str:
    """Another layout, no comments but a new one, and other docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant("Another docstring."))
    return "# A comment.\n" + ast.unparse(ast.fix_missing_locations(tree)).replace("\n\n", "\n\n\n") + "\n"


# In this process: does the string that Snakemake compares differ? ---------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the project that fingerprints are taken from."""
    finished_grid.copy_project(tmp_path)
    finished_grid.write_source(tmp_path / "plain.npz", 1)
    finished_grid.write_source(tmp_path / "flipped.npz", 2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fingerprint, "ROOT", tmp_path)
    fingerprint.forget()
    yield tmp_path
    fingerprint.forget()


def settings_of(changes: dict[str, Any] | None = None) -> Settings:
    return Settings.parse(overlaid([read_file(Path("config.yaml")), laid(CONFIG, changes or {})]))


def jobs(settings: Settings) -> dict[Cell, tuple[str, ...]]:
    """All strings that decide whether a cell trains: its own, its data set's and its partition's."""
    plan = Plan(settings)
    return {cell: (plan.job(cell), plan.prepare_job(cell.dataset), plan.partition_job_of(cell)) for cell in plan.cells}


def evaluations(settings: Settings) -> list[str]:
    """The strings that decide whether blocks are evaluated."""
    plan = Plan(settings)
    return [plan.evaluation_job(*block) for block in plan.blocks()]


def changed(before: dict[Cell, tuple[str, ...]], after: dict[Cell, tuple[str, ...]]) -> set[Cell]:
    return {cell for cell in after if after[cell] != before.get(cell)}


def test_each_room_concerns_the_cells_that_it_is_for(package: Path) -> None:
    """An edit of logic in every module, one after the other, and another layout of it."""
    settings = settings_of()
    before, evaluated = jobs(settings), evaluations(settings)
    wrong = {}
    for module in sorted(package.glob("bflp/**/*.py")):
        name, source = str(module.relative_to(package / "bflp")), module.read_text(encoding="utf-8")
        module.write_text(edit_logic(source), encoding="utf-8")
        fingerprint.forget()
        found = changed(before, jobs(settings))
        chosen = expected(name)
        if found != {cell for cell in before if chosen(cell)}:
            wrong[name] = len(found)
        if re.fullmatch(rf"engine/(evaluation|fairness|metrics/({FINAL_METRICS}))\.py", name):
            assert all(one != other for one, other in zip(evaluated, evaluations(settings), strict=True)), name
        module.write_text(edit_layout(source), encoding="utf-8")
        fingerprint.forget()
        assert not changed(before, jobs(settings)), name
        assert evaluations(settings) == evaluated, name
        module.write_text(source, encoding="utf-8")
    assert not wrong


def test_all_rooms_are_there(package: Path) -> None:
    """A pattern that fits no module would say nothing."""
    modules = [str(module.relative_to(package / "bflp")) for module in package.glob("bflp/**/*.py")]
    used = {next(pattern for pattern, _ in ROOMS if re.fullmatch(pattern, module)) for module in modules}
    assert {pattern for pattern, _ in ROOMS} == used


def test_an_algorithm_concerns_its_own_cells_and_a_new_one_none(package: Path) -> None:
    models = {"PROX": {"algorithm": "fedprox"}, "SCAFFOLD": {"algorithm": "scaffold"}}
    settings = settings_of({"grid": {"models": ["FEDAVG", "FVBWA", *models]}, "models": models})
    before = jobs(settings)
    (package / "bflp/algorithms/mine.py").write_text("def local(*given): ...\n", encoding="utf-8")
    fingerprint.forget()
    assert changed(before, jobs(settings)) == set()
    # The second is imported by the first.
    for name in ("scaffold", "_steps"):
        path = package / f"bflp/algorithms/{name}.py"
        path.write_text(edit_logic(path.read_text(encoding="utf-8")), encoding="utf-8")
        fingerprint.forget()
        found = changed(before, jobs(settings))
        assert found == {cell for cell in before if cell.model == "SCAFFOLD"} != set()
        before = jobs(settings)


@pytest.mark.parametrize(
    ("changes", "concerned"),
    [
        ({"aggregators": {"PPA": {"population": 500}}}, of_rules("PPA")),
        ({"posterior": {"prior": {"standard_deviation": 0.5}}}, of_rules(*RULES)),
        ({"posterior": {"log_variance": {"enforce": "project"}}}, of_rules(*RULES)),
        ({"evaluation": {"monte_carlo_samples": 3}}, of_rules(*RULES)),
        ({"evaluation": {"ece_bins": 20}}, none),
        ({"evaluation": {"final": {"monte_carlo_samples": 7}}}, none),
        ({"evaluation": {"keep_predictions": True}}, none),
        ({"evaluation": {"every": 2}}, every),
        ({"aggregation": "reference"}, of_rules("EAA", "GAA", "PPA")),
        ({"training": {"learning_rate": 0.02}}, every),
        ({"training": {"local_epochs": 2}}, every),
        ({"setups": {2: {"rounds": 2}}}, every),
        ({"setups": {3: {"fraction": 1.0, "rounds": 2}}}, none),
        ({"partitions": {"uneven": {"alpha": 4.0}}}, uneven),
        ({"partitions": {"noniid": {"alpha": 4.0}}}, none),
        ({"datasets": {"flipped": {"augment": {"flip_probability": 0.25}}}}, flipped),
        ({"processes": 4}, none),
        ({"device": "auto"}, none),
        ({"on_divergence": "record"}, none),
        ({"checkpoint_seconds": 5}, none),
        ({"tables": {"metrics": ["accuracy"]}}, none),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_each_setting_concerns_the_cells_that_it_governs(
    package: Path, changes: dict[str, Any], concerned: Chosen
) -> None:
    before, after = jobs(settings_of()), jobs(settings_of(changes))
    assert changed(before, after) == {cell for cell in before if concerned(cell)}


# With Snakemake: what does a dry run list? ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished grid. Tests that change results work on a copy."""
    folder = tmp_path_factory.mktemp("finished")
    finished_grid.make(folder)
    return folder


@pytest.fixture
def own(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished grid, with the files' times."""
    shutil.copytree(finished, tmp_path / "own", symlinks=True)
    return tmp_path / "own"


def names(concerned: Chosen, config: dict[str, Any] | None = None) -> set[str]:
    grid = (config or CONFIG)["grid"]
    rows = [
        (model, rule) for model in grid["models"] for rule in (grid["aggregators"] if "V" in model[:2] else ["none"])
    ]
    cells = (
        Cell(dataset, partition, str(clients), model, rule, seed)
        for dataset in grid["datasets"]
        for partition in grid["partitions"]
        for clients in grid["clients"]
        for model, rule in rows
        for seed in grid["seeds"]
    )
    return {str(cell) for cell in cells if concerned(cell)}


def watched(folder: Path) -> tuple[set[str], set[str]]:
    """What a dry run lists: the cells, and which of the rules that tests watch."""
    cells, rules = would_run(folder)
    return cells, WATCHED.intersection(rules)


def why(folder: Path, *arguments: str) -> str:
    """What the command that explains says."""
    command = [sys.executable, "workflow/scripts/run.py", "why", "--configfile", "small.yaml", "--all", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def explained(said: str) -> set[str]:
    return {line.strip() for line in said.splitlines() if line.startswith("  ")}


def test_48_cells(finished: Path) -> None:
    assert len(names(every)) == 48
    assert {
        str(path.relative_to(finished / "results/cells"))[:-5] for path in finished.glob("results/cells/**/*.json")
    } == names(every)


FILES: list[tuple[str, Chosen, set[str]]] = [
    ("bflp/aggregators/eaa.py", of_rules("EAA"), EVALUATING),
    ("bflp/partition/redraw.py", uneven, EVALUATING | {"partition"}),
    ("bflp/rng.py", every, EVALUATING | {"partition"}),
    ("bflp/engine/augment.py", flipped, EVALUATING),
    ("bflp/engine/metrics/ace.py", none, EVALUATING),
    ("bflp/datasets/convert.py", every, EVALUATING | {"partition", "prepare"}),
    ("bflp/reporting/tables.py", none, {"tables"}),
    ("bflp/results/frame.py", none, MERGING),
    ("bflp/provenance/reasons.py", none, set()),
]


@pytest.mark.parametrize(("file", "concerned", "others"), FILES, ids=[edit[0] for edit in FILES])
def test_snakemake_runs_what_an_edit_concerns(finished: Path, file: str, concerned: Chosen, others: set[str]) -> None:
    path = finished / file
    source = path.read_text(encoding="utf-8")
    try:
        path.write_text(edit_logic(source), encoding="utf-8")
        assert watched(finished) == (names(concerned), others)
        said = why(finished)
        assert explained(said) == names(concerned)
        if names(concerned):
            assert file in said
    finally:
        path.write_text(source, encoding="utf-8")


@pytest.mark.parametrize("edit", EDITS, ids=[edit.what for edit in EDITS])
def test_the_jobs_that_edits_cost(own: Path, edit: Edit) -> None:
    """The table of docs/concepts.md."""
    edit.make(own)
    assert edit_jobs(own) == (edit.training, edit.evaluation)


def test_a_new_layout_of_everything_runs_nothing(own: Path) -> None:
    for module in own.glob("bflp/**/*.py"):
        module.write_text(edit_layout(module.read_text(encoding="utf-8")), encoding="utf-8")
    assert would_run(own) == (set(), [])


def test_a_branch_and_back(own: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@e"]
        subprocess.run(["git", *identity, *arguments], cwd=own, check=True, capture_output=True)

    git("init", "--initial-branch", "main")
    git("add", "bflp", "Snakefile", "workflow", "config.yaml", "small.yaml")
    git("commit", "-m", "all")
    git("checkout", "-b", "other")
    path = own / "bflp/aggregators/cf.py"
    path.write_text(path.read_text(encoding="utf-8").replace("weights.max()", "weights.min()"), encoding="utf-8")
    git("commit", "-a", "-m", "another CF")
    assert watched(own) == (names(of_rules("CF")), EVALUATING)
    git("checkout", "main")
    assert would_run(own) == (set(), [])


NEW_SET_UP = {"grid": {"clients": [2, 3]}, "setups": {3: {"fraction": 1.0, "rounds": 1}}}
GRIDS: list[tuple[str, dict[str, Any], Chosen, set[str]]] = [
    ("a new seed", {"grid": {"seeds": [0, 7]}}, lambda cell: cell.seed == 7, EVALUATING | {"partition"}),
    ("a new set-up", NEW_SET_UP, lambda cell: cell.clients == "3", EVALUATING | {"partition"}),
    (
        "a new data set",
        {"grid": {"datasets": ["plain", "flipped", "third"]}, "datasets": {"third": {"source": "plain.npz"}}},
        lambda cell: cell.dataset == "third",
        EVALUATING | {"partition", "prepare"},
    ),
    (
        "a new aggregator",
        {"grid": {"aggregators": [*RULES, "MINE"]}, "aggregators": {"MINE": {"file": "bflp/aggregators/eaa.py"}}},
        of_rules("MINE"),
        EVALUATING,
    ),
    ("fewer aggregators", {"grid": {"aggregators": ["EAA", "CF"]}}, none, EVALUATING),
    ("fewer data sets", {"grid": {"datasets": ["plain"]}}, none, MERGING),
]


@pytest.mark.parametrize(
    ("changes", "concerned", "others"), [grid[1:] for grid in GRIDS], ids=[grid[0] for grid in GRIDS]
)
def test_snakemake_runs_what_another_config_concerns(
    finished: Path, changes: dict[str, Any], concerned: Chosen, others: set[str]
) -> None:
    config = laid(CONFIG, changes)
    try:
        write_config(finished, config)
        assert watched(finished) == (names(concerned, config), others)
        assert explained(why(finished)) == names(concerned, config)
    finally:
        write_config(finished, CONFIG)


def test_new_content_of_a_source_runs_its_cells(own: Path) -> None:
    finished_grid.write_source(own / "flipped.npz", 99)
    assert watched(own) == (names(flipped), WATCHED)
    said = why(own)
    assert explained(said) == names(flipped)
    assert "flipped.npz has other content" in said


def test_preparing_first_spares_cells_whose_data_come_out_the_same(own: Path) -> None:
    path = own / "bflp/datasets/convert.py"
    path.write_text(edit_logic(path.read_text(encoding="utf-8")), encoding="utf-8")
    done = snakemake(own, "prepare_all")
    assert done.returncode == 0, done.stderr
    assert would_run(own)[0] == set()
    assert explained(why(own)) == set()


# Records that are lost, and code that changes meanwhile -------------------------------------------------------------

ONE_CELL = {"grid": {"datasets": ["plain"], "partitions": ["iid"], "models": ["FVBA"], "aggregators": ["EAA"]}}


def test_without_snakemakes_records(own: Path) -> None:
    """Fresh results are not run again, and stale ones do not pass."""
    write_config(own, laid(CONFIG, ONE_CELL))
    assert snakemake(own, "tables").returncode == 0
    shutil.rmtree(own / ".snakemake")
    assert watched(own) == NOTHING
    path = own / "bflp/aggregators/eaa.py"
    path.write_text(edit_logic(path.read_text(encoding="utf-8")), encoding="utf-8")
    done = snakemake(own)
    assert done.returncode != 0
    result = "results/cells/plain/iid/2/FVBA/EAA/seed0.json"
    assert "plain/iid/2/FVBA/EAA/seed0: other code (bflp/aggregators/eaa.py)" in done.stdout + done.stderr
    assert why(own, "--paths").split() == [result]
    # What the message says.
    (own / result).unlink()
    assert watched(own) == ({"plain/iid/2/FVBA/EAA/seed0"}, EVALUATING)
    done = snakemake(own, "--until", "merge")
    assert done.returncode == 0, done.stdout + done.stderr
    assert watched(own) == (set(), {"tables"})


def test_other_curves_of_the_same_model_are_drawn(own: Path) -> None:
    """Trained by a run that stopped before it evaluated."""
    curves = laid(CONFIG, ONE_CELL | {"setups": {2: {"rounds": 2}}})
    write_config(own, curves)
    assert snakemake(own, "merge").returncode == 0
    model = own / "results/cells/plain/iid/2/FVBA/EAA/seed0.safetensors"
    before = model.read_bytes()
    write_config(own, laid(curves, {"evaluation": {"every": 2}}))
    assert snakemake(own, str(model.relative_to(own).with_suffix(".json"))).returncode == 0
    assert model.read_bytes() == before
    cells, rules = would_run(own)
    assert not cells
    assert {"evaluate", "draw", "merge"} <= set(rules)


def start_cell(folder: Path, plan: Plan, cell: Cell) -> subprocess.Popen[str]:
    command = [sys.executable, "workflow/scripts/run.py", "train", "--job", plan.job(cell), "--processes", "1"]
    files = {
        "data": "data/plain.npz",
        "partition": "results/partitions/plain/iid/2/seed0.npz",
        "results": "out",
        "device": "cpu",
        "evaluation": plan.evaluation_text(cell),
    }
    command += [argument for name, file in files.items() for argument in (f"--{name}", file)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


WAITING_RULE = """
import time
from pathlib import Path

def aggregate(means, log_variances, weights, settings, generator):
    Path("aggregating").touch()
    while not Path("go on").exists():
        time.sleep(0.02)
    return weights @ means, weights @ log_variances
"""


def test_code_that_changes_while_a_cell_runs_is_refused(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own)
    monkeypatch.setattr(fingerprint, "ROOT", own)
    fingerprint.forget()
    (own / "waiting.py").write_text(WAITING_RULE, encoding="utf-8")
    config = {"grid": {"aggregators": ["MINE"]}, "aggregators": {"MINE": {"file": "waiting.py"}}}
    plan, cell = Plan(settings_of(config)), Cell("plain", "iid", "2", "FVBA", "MINE", 0)
    plan.evaluation_text(cell)
    fingerprint.forget()
    path = own / "bflp/rng.py"
    source = path.read_text(encoding="utf-8")
    # An edit that is there when the job starts, as if it were reverted right after.
    path.write_text(edit_logic(source), encoding="utf-8")
    early = start_cell(own, plan, cell)
    said, _ = early.communicate(timeout=60)
    assert early.returncode == 1
    assert "the code was changed after this cell's job was made" in said
    path.write_text(source, encoding="utf-8")
    # An edit that comes later.
    late = start_cell(own, plan, cell)
    deadline = time.monotonic() + 60
    while not Path("aggregating").exists():
        assert late.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    path.write_text(edit_logic(source), encoding="utf-8")
    Path("go on").touch()
    said, _ = late.communicate(timeout=60)
    assert late.returncode == 1
    assert "the code was changed after this cell's job was made" in said
    assert not list(Path("out/cells").rglob("*.json"))


# Light ---------------------------------------------------------------------------------------------------------------


def test_neither_the_snakefile_nor_the_explanation_imports_what_is_slow() -> None:
    """Every job reads the Snakefile again, and torch alone takes seconds."""
    imports = [
        line
        for line in (finished_grid.PROJECT / "Snakefile").read_text(encoding="utf-8").splitlines()
        if line.startswith(("from bflp", "import bflp"))
    ]
    script = (finished_grid.PROJECT / "bflp/cli/why.py").read_text(encoding="utf-8").splitlines()
    imports += [line for line in script if line.startswith("from bflp")]
    heavy = ("torch", "torchvision", "pandas", "matplotlib", "scipy", "sklearn")
    code = "\n".join([*imports, "import sys", f"print([name for name in {heavy!r} if name in sys.modules])"])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=finished_grid.PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    assert len(imports) > 5
