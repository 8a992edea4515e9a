"""Fingerprints: the same when the code means the same, another when it does not, and of the right modules."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bflp import fingerprint as module
from bflp.errors import UserError
from bflp.fingerprint import digests, fingerprint, forget, import_closure
from bflp.grid.cell import Cell
from bflp.grid.coverage import evaluation_modules, outside_files, training_fingerprint, training_modules
from bflp.grid.plan import Plan
from bflp.settings.schema import Settings

PROJECT = Path(__file__).resolve().parents[1]
MODULES = sorted(PROJECT.glob("bflp/**/*.py"))
CONFIG: dict[str, Any] = yaml.safe_load((PROJECT / "config.yaml").read_text(encoding="utf-8"))
PLAN = Plan(Settings.parse(CONFIG))


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that fingerprints are taken from, instead of the project's."""
    monkeypatch.setattr(module, "ROOT", tmp_path)
    forget()
    yield tmp_path
    forget()


@pytest.fixture
def package(sandbox: Path) -> Path:
    """A copy of the package that fingerprints are taken from."""
    shutil.copytree(PROJECT / "bflp", sandbox / "bflp", ignore=shutil.ignore_patterns("__pycache__"))
    return sandbox / "bflp"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def closure_of(cell: str) -> frozenset[str]:
    return import_closure(training_modules(json.loads(PLAN.job(Cell.parse(cell)))))


def digest(*modules: str) -> str:
    forget()
    return fingerprint(modules)


SOURCE = '''"""What it does."""

import math


def area(radius: float) -> float:
    """Of a circle."""
    # The usual formula.
    return math.pi * radius**2


class Shape:
    """Any."""

    sides: int = 4
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("# The usual formula.", "# Another comment.", True),
        ("    # The usual formula.\n", "", True),
        ('"""Of a circle."""', '"""Of a disc, in square metres."""', True),
        ('    """Of a circle."""\n', "", True),
        ('"""What it does."""\n', "", True),
        ('    """Any."""\n\n', "", True),
        ("math.pi * radius**2", "(math.pi\n            * radius ** 2)", True),
        ("\n\n\nclass", "\n\n\n\n\n\nclass", True),
        ("radius: float", "radius : float", True),
        ("radius**2", "radius**3", False),
        ("math.pi", "math.e", False),
        ("sides: int = 4", "sides: int = 5", False),
        ("def area", "def surface", False),
        ("import math", "import math as maths", False),
        ("return math.pi * radius**2", "return radius**2 * math.pi", False),
        ("sides: int = 4", "sides: int = 4\n    corners = 4", False),
    ],
)
def test_what_changes_a_fingerprint(sandbox: Path, old: str, new: str, same: bool) -> None:
    write(sandbox, {"bflp/__init__.py": "", "bflp/shape.py": SOURCE})
    before = digest("bflp.shape")
    assert old in SOURCE
    write(sandbox, {"bflp/shape.py": SOURCE.replace(old, new)})
    assert (digest("bflp.shape") == before) is same


def test_code_keeps_its_fingerprint(sandbox: Path) -> None:
    """Otherwise an edit of how it is taken would train everything again."""
    write(
        sandbox,
        {
            "bflp/__init__.py": '"""All."""\n',
            "bflp/shape.py": f"import bflp.other\n{SOURCE}",
            "bflp/other.py": "def f(*a, b=None, **c):\n    ...\n\n\nx: int\ny = [0, -1.5, 'a', {**x}]\n",
        },
    )
    assert digest("bflp.shape") == "97d384318f4b2b21"


def test_constants_are_told_apart(sandbox: Path) -> None:
    """Also those that Python takes for equal, or for nothing."""
    write(sandbox, {"bflp/__init__.py": ""})
    values = ("0", "0.0", "-0.0", "0j", "False", "None", "''", "b''", "()", "[]", "{}", "...", "1", "1.0", "True")
    found = set()
    for value in values:
        write(sandbox, {"bflp/shape.py": f"sides = {value}\n"})
        found.add(digest("bflp.shape"))
    assert len(found) == len(values)


START = """
from bflp import one
import bflp.two

def f():
    from bflp.sub.three import g
    if f:
        import bflp.four as four
    try:
        import bflp.five
    except ImportError:
        pass
"""


def test_the_closure_follows_every_way_to_import(sandbox: Path) -> None:
    write(
        sandbox,
        {
            "bflp/__init__.py": "",
            "bflp/start.py": START,
            "bflp/one.py": "from bflp.six import value\nimport numpy\nimport json.decoder\n",
            "bflp/two.py": "class A:\n    def method(self):\n        import bflp.seven\n",
            "bflp/sub/__init__.py": "import bflp.eight\n",
            "bflp/sub/three.py": "import bflp.start  # round in a circle\n",
            **{f"bflp/{name}.py": "value = 1\n" for name in ("four", "five", "six", "seven", "eight", "unused")},
        },
    )
    forget()
    found = {name.removeprefix("bflp.") for name in import_closure(("bflp.start",))}
    numbers = {"one", "two", "sub.three", "four", "five", "six", "seven", "eight"}
    assert found == {"bflp", "start", "sub", *numbers}


def test_a_change_anywhere_in_the_closure_shows(package: Path) -> None:
    modules = training_modules(json.loads(PLAN.job(Cell.parse("cifar10/noniid/10/FVBA/PPA/seed0"))))
    before = digest(*modules)
    originals = {name: module._module_digest(name) for name in import_closure(modules)}
    assert len(originals) > 15
    for name, original in originals.items():
        path = module._file(name)
        assert path is not None
        with path.open("a", encoding="utf-8") as file:
            file.write("\n# a comment\n")
        assert module._module_digest.__wrapped__(name) == original, name
    assert digest(*modules) == before
    for name, original in originals.items():
        path = module._file(name)
        assert path is not None
        with path.open("a", encoding="utf-8") as file:
            file.write("\n_new = 1\n")
        assert module._module_digest.__wrapped__(name) != original, name
    assert digest(*modules) != before


def test_a_change_of_one_module_shows(package: Path) -> None:
    modules = training_modules(json.loads(PLAN.job(Cell.parse("fmnist/iid/10/FED/none/seed0"))))
    before = digest(*modules)
    with (package / "rng.py").open("a", encoding="utf-8") as file:
        file.write("\n_new = 1\n")
    assert digest(*modules) != before


def test_only_what_a_cell_can_import_counts(package: Path) -> None:
    modules = training_modules(json.loads(PLAN.job(Cell.parse("fmnist/iid/10/FED/none/seed0"))))
    before = digest(*modules)
    covered = {module._file(name) for name in import_closure(modules)}
    others = [path for path in package.rglob("*.py") if path not in covered]
    # What runs the engine, reads settings, draws tables; other rules, strategies and metrics.
    names = {str(path.relative_to(package).with_suffix("")) for path in others}
    assert {"runtime/cell", "runtime/pool", "settings/schema", "grid/plan", "results/result", "fingerprint"} <= names
    assert {"errors", "files", "aggregators/eaa", "partition/dirichlet", "engine/metrics/brier"} <= names
    for path in others:
        with path.open("a", encoding="utf-8") as file:
            file.write("\n_new = 1\n")
    assert digest(*modules) == before


def test_what_every_cell_runs_counts() -> None:
    needed = {"bflp.engine.server", "bflp.engine.work", "bflp.engine.metrics.ece", "bflp.rng"}
    assert needed <= closure_of("fmnist/iid/10/FED/none/seed0")


@pytest.mark.parametrize("rule", ["EAA", "GAA", "AALV", "PPA", "CF"])
def test_a_rule_is_in_its_own_cells_only(rule: str) -> None:
    name = f"bflp.aggregators.{rule.lower()}"
    having = {cell.aggregator for cell in PLAN.cells if cell.seed == 0 and name in closure_of(str(cell))}
    assert having == {rule}


def test_augmentation_and_strategies_are_where_they_are_used() -> None:
    cells = [cell for cell in PLAN.cells if cell.seed == 0]
    assert {cell.dataset for cell in cells if "bflp.engine.augment" in closure_of(str(cell))} == {"cifar10"}
    assert {cell.partition for cell in cells if "bflp.partition.dirichlet" in closure_of(str(cell))} == {"noniid"}
    assert {cell.partition for cell in cells if "bflp.partition.iid" in closure_of(str(cell))} == {"iid"}


def test_what_a_method_chooses_is_in_its_own_cells_only() -> None:
    eaa, kinds = {"aggregators": ["EAA"]}, ("ivon", "laplace", "swag")
    models = {
        "PROX": {"algorithm": "fedprox"},
        "MLP": {"network": "mlp"},
        "ALL": {"posterior": {"variational": "all"}, **eaa},
        "STACK": {"base": "FVBWA", "training": {"stack": 5}, **eaa},
        **{kind.upper(): {"posterior": kind, **eaa} for kind in kinds},
    }
    grid = {"datasets": ["fmnist"], "partitions": ["iid"], "clients": [10], "models": ["FED", *models], "seeds": [0]}
    plan = Plan(Settings.parse({**CONFIG, "grid": grid, "models": models}))
    jobs = {cell.model: json.loads(plan.job(cell)) for cell in plan.cells}
    closures = {model: import_closure(training_modules(job)) for model, job in jobs.items()}

    def having(module: str) -> set[str]:
        return {model for model, closure in closures.items() if f"bflp.{module}" in closure}

    assert having("algorithms.fedprox") == {"PROX"}
    assert having("networks.mlp") == {"MLP"}
    assert having("networks.plain") == {"MLP", "ALL"}
    assert having("engine.stack") == {"STACK"}
    for kind in kinds:
        assert having(f"engine.{kind}") == {kind.upper()}
    sampled = {model for model, job in jobs.items() if "bflp.networks.sampled" in import_closure(evaluated(job))}
    assert sampled == having("networks.sampled") == {kind.upper() for kind in kinds}


def evaluated(job: Any, **asked: Any) -> tuple[str, ...]:
    return evaluation_modules(job, ("ace",), asked)


def test_what_is_measured_on_demand_is_in_evaluations_that_ask_for_it() -> None:
    job = json.loads(PLAN.job(Cell.parse("fmnist/iid/10/FVBWA/EAA/seed0")))
    further = {f"bflp.{name}" for name in ("engine.evaluators.personal", "aggregators.w2")}
    plain, personal = (import_closure(evaluated(job, **asked)) for asked in ({}, {"personal": {"rule": "W2"}}))
    assert not further & plain and further <= personal and "bflp.engine.metrics.ace" in plain


def test_own_files_by_their_role() -> None:
    """Evaluating runs the network alone of them."""
    job = {"files": {"network": "net.py", "algorithm": "mine.py", "aggregator": "rule.py"}}
    assert outside_files(job) == ("rule.py", "mine.py", "net.py")
    assert outside_files(job, "network") == ("net.py",)
    assert outside_files({}) == ()


def test_a_cell_is_of_the_content_of_its_own_files(tmp_path: Path) -> None:
    file, job = tmp_path / "mine.py", json.loads(PLAN.job(Cell.parse("fmnist/iid/10/FED/none/seed0")))
    found = {training_fingerprint(job)}
    for content in ("x = 1\n", "x = 2\n"):
        file.write_text(content, encoding="utf-8")
        found.add(training_fingerprint({**job, "files": {"algorithm": str(file)}}))
    assert len(found) == 3


def test_the_rules_package_imports_no_rule() -> None:
    assert not {name for name in import_closure(("bflp.aggregators",)) if name.startswith("bflp.aggregators.")}


def test_a_file_outside_the_package(sandbox: Path) -> None:
    write(
        sandbox, {"bflp/__init__.py": "", "bflp/shape.py": SOURCE, "bflp/base.py": "", "mine.py": "import bflp.shape\n"}
    )
    files = (str(sandbox / "mine.py"),)
    forget()
    before = fingerprint(("bflp.base",), files)
    assert before != fingerprint(("bflp.base",))
    assert "bflp.shape" in import_closure(("bflp.base",), files)
    assert digests(("bflp.base",), files).keys() == {"bflp", "bflp.base", "bflp.shape", *files}
    (sandbox / "mine.py").write_text("# mine\nimport bflp.shape\n", encoding="utf-8")
    forget()
    assert fingerprint(("bflp.base",), files) == before
    (sandbox / "mine.py").write_text("import bflp.shape\nx = 1\n", encoding="utf-8")
    forget()
    assert fingerprint(("bflp.base",), files) != before
    # And so does what it alone imports.
    (sandbox / "mine.py").write_text("import bflp.shape\n", encoding="utf-8")
    write(sandbox, {"bflp/shape.py": SOURCE.replace("4", "5")})
    forget()
    assert fingerprint(("bflp.base",), files) != before


def test_every_file_outside_the_package_counts(tmp_path: Path) -> None:
    files = tuple(str(tmp_path / name) for name in ("rule.py", "network.py"))
    found = set()
    for contents in (("x = 1\n", "x = 1\n"), ("x = 2\n", "x = 1\n"), ("x = 1\n", "x = 2\n")):
        write(tmp_path, dict(zip(files, contents, strict=True)))
        found.add(fingerprint((), files))
    assert len(found) == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"def f(:\n", "line 1: "), (b"x = 1\x00\n", "null"), (b"\xff\xfe", "line 1: (unicode error)")],
)
def test_a_file_that_is_not_python_is_told_in_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        fingerprint((), (str(file),))
    assert str(file) in str(caught.value) and words in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_in_another_encoding_is_read_as_python_reads_it(tmp_path: Path) -> None:
    plain, marked, latin = tmp_path / "plain.py", tmp_path / "marked.py", tmp_path / "latin.py"
    plain.write_text("x = 'é'\n", encoding="utf-8")
    marked.write_text("x = 'é'\n", encoding="utf-8-sig")
    latin.write_text("# coding: latin-1\nx = 'é'\n", encoding="latin-1")
    assert len({fingerprint((), (str(file),)) for file in (plain, marked, latin)}) == 1


# What fingerprints rely on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_no_import_that_the_closure_misses(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"a relative import in line {node.lineno}"


def test_modules_imported_by_computed_names_are_the_known_ones() -> None:
    """Within the wall: there the closure misses them, so they are named to the fingerprint one by one."""
    rooms = ("engine", "networks", "aggregators", "algorithms", "partition")
    using = {
        str(path.relative_to(PROJECT))
        for path in MODULES
        if path.relative_to(PROJECT).parts[1] in (*rooms, "rng.py", "__init__.py")
        if any(word in path.read_text(encoding="utf-8") for word in ("import_module(", "__import__(", "exec_module("))
    }
    # Strategies, augmentation, metrics, evaluators, algorithms; the package itself imports what notebooks ask for.
    assert using <= {
        *(
            "bflp/__init__.py",
            "bflp/engine/evaluators/personal.py",
            "bflp/partition/split.py",
            "bflp/engine/batches.py",
            "bflp/engine/evaluation.py",
            "bflp/engine/stack.py",
            "bflp/engine/work.py",
            "bflp/engine/metrics/registry.py",
        ),
        *("bflp/algorithms/__init__.py", "bflp/networks/__init__.py"),
    }


def checked(tmp_path: Path, change: Callable[[Path], None] | None = None) -> tuple[int, str]:
    """Run check_code in a program of its own on a copy of the package; `change`: what is done to it before."""
    project = tmp_path / "project"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "bflp", project / "bflp", ignore=ignored, dirs_exist_ok=True)
    job = PLAN.job(Cell.parse("fmnist/iid/10/FVBA/PPA/seed0"))
    if change:
        change(project / "bflp")
    code = (
        "from bflp.grid.job import Job\nfrom bflp.runtime.termination import run_script\n"
        f"from bflp.grid.coverage import check_code\nrun_script(lambda: check_code(Job.parse({job!r})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.slow
def test_a_job_is_checked_against_the_code_on_disk(tmp_path: Path) -> None:
    def add(text: str, name: str) -> Any:
        def change(package: Path) -> None:
            with (package / name).open("a", encoding="utf-8") as file:
                file.write(text)

        return change

    assert checked(tmp_path) == (0, "")
    assert checked(tmp_path, add("\n# a comment\n", "rng.py")) == (0, "")
    assert checked(tmp_path, add("\n_new = 1\n", "aggregators/eaa.py")) == (0, "")
    # What runs the engine may change while cells wait in a queue.
    assert checked(tmp_path, add("\n_new = 1\n", "runtime/pool.py")) == (0, "")
    code, error = checked(tmp_path, add("\n_new = 1\n", "aggregators/ppa.py"))
    assert code == 1
    assert error.startswith("error: the code was changed after this cell's job was made")
    assert error.count("\n") == 1
