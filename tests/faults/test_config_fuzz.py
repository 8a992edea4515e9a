"""Whatever a config holds: settings, or one line that says what is wrong; never a traceback."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bflp.errors import UserError
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.settings.read import overlaid, read_file
from bflp.settings.schema import Settings

ROOT = Path(__file__).resolve().parents[2]
# Set BFLP_LONG=1 for so many times more.
MORE = 40 if os.environ.get("BFLP_LONG") else 1
VALID = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
DEMO = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text(encoding="utf-8"))

NASTY_TEXTS = [
    *("", " ", ".", "..", "../x", "/", "-rf", "--config", "~", "~root", "none", "NONE", "null", "nan", "inf", "1e999"),
    *(
        "$(touch canary)",
        "`touch canary`",
        "; touch canary",
        "a b",
        "a'b",
        'a"b',
        "a\nb",
        "a\0b",
        "{x}",
        "{",
        "*",
        "\\",
    ),
    *("\ud800", "é", "日本", "x" * 300, "x" * 5000, "a/b", "seed0", "iid", "fmnist", "FED", "EAA", "10", "True"),
    *("dirichlet", "FVBA", "auto", "adam", "base", "1e-5"),
]
KEYS = st.none() | st.booleans() | st.integers() | st.sampled_from(NASTY_TEXTS) | st.text(max_size=20)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, 1, 2, 100, 2**31, 2**63, 10**400, -(10**400)]),
    st.floats(),
    st.sampled_from(NASTY_TEXTS),
    st.text(max_size=20),
    st.dates(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


METHODS = {
    "A": {"base": "FVBA", "posterior": {"prior": {"mean": 1}}, "training": {"momentum": 0}, "aggregators": ["EAA"]},
    "B": {"base": "A", "optimiser": {"name": "adam", "betas": [0.9, 0.99]}, "algorithm": "fedavg", "network": "lenet"},
}


def _places(tree, path=()):
    """All places in a config, as paths of keys."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from _places(value, (*path, key))


def _replaced(tree, path, value):
    if not path:
        return value
    copied = dict(tree) if isinstance(tree, dict) else list(tree)
    copied[path[0]] = _replaced(tree[path[0]], path[1:], value)
    return copied


def _removed(tree, path):
    if len(path) > 1:
        return _replaced(tree, path[:1], _removed(tree[path[0]], path[1:]))
    rest = dict(tree) if isinstance(tree, dict) else list(tree)
    del rest[path[0]]
    return rest


def _added(tree, path, key, value):
    target = tree
    for part in path:
        target = target[part]
    if not isinstance(target, dict):
        return tree
    return _replaced(tree, path, {**target, key: value})


@st.composite
def configs(draw):
    """A valid config, one to three places of which hold something else, or nothing."""
    config = draw(st.sampled_from([VALID, {**VALID, **DEMO}, {**VALID, "models": METHODS}]))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(_places(config))[1:] or [()]))
        how = draw(st.sampled_from(["replace", "remove", "add"]))
        if how == "replace":
            config = _replaced(config, path, draw(VALUES))
        elif how == "add":
            config = _added(config, path, draw(KEYS), draw(VALUES))
        elif path:
            config = _removed(config, path)
        if not isinstance(config, dict):
            break
    return config


def load(file):
    return Settings.parse(overlaid([read_file(file)]))


def _is_used_or_refused(make):
    """What the settings of a config name can be planned; what is refused is refused in one line."""
    try:
        plan = Plan(make())
        grid = plan.settings.grid
        sizes = [len(grid.datasets), len(grid.partitions), len(grid.clients), len(plan.rows), len(grid.seeds)]
        assert all(size > 0 for size in sizes)
        cell = Cell(grid.datasets[0], grid.partitions[0], grid.clients[0], *plan.rows[0], grid.seeds[0])
        plan.job(cell)
        plan.evaluation_text(cell)
        plan.paths.result(cell).exists()
        plan.paths.data(cell.dataset).exists()
        assert Settings.parse(yaml.safe_load(plan.settings.canonical())) == plan.settings
    except UserError as error:
        assert "\n" not in str(error) and "pydantic" not in str(error)
        assert 0 < len(str(error)) < 3000
        str(error).encode()


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=300 * MORE)
@given(configs())
@example({**VALID, "tables": {"metrics": [None] * 4}})
@example({**VALID, "datasets": {f"{'x' * 60}{i}": {"labels": 0, "shape": "x" * 300} for i in range(30)}})
def test_mutated_configs(config):
    _is_used_or_refused(lambda: Settings.parse(config))


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=100 * MORE)
@given(VALUES)
def test_any_value(config):
    _is_used_or_refused(lambda: Settings.parse(config))


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150 * MORE)
@given(
    st.integers(0, 10**6),
    st.binary(max_size=6) | st.sampled_from([b"\t", b"&a *a", b"!!python/object:os.system", b"- ["]),
)
@example(0, b"&a [*a]\n")
@example(0, b"!!python/object/apply:os.system ['touch canary']\n")
def test_mutated_files(position, inserted):
    content = (ROOT / "config.yaml").read_bytes()
    position %= len(content)
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        Path(file.name).write_bytes(content[:position] + inserted + content[position + len(inserted) :])
        _is_used_or_refused(lambda: load(Path(file.name)))


def test_a_bomb_of_aliases_is_refused_shortly(tmp_path):
    """Nine lists of nine of the list before, which as text would be 9^9 words long."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join([*lines, "grid: *a8", "training: {momentum: *a8}", ""]))
    with pytest.raises(UserError) as refused:
        load(file)
    assert len(str(refused.value)) < 3000


@pytest.mark.parametrize(
    "overlay",
    [
        {"results_dir": "x" * 300},
        {"results_dir": "\ud800"},
        {"training": {"learning_rate": 10**400}},
        {"aggregators": {"MINE": {"file": "x/" * 3000}}},
        {"datasets": {"fmnist": {"source": "$(touch canary)"}}},
    ],
    ids=lambda overlay: next(iter(overlay)),
)
def test_the_program_ends_with_one_line(tmp_path, overlay):
    """What a person sees: the training program on a config that nobody would write."""
    file = tmp_path / "odd.yaml"
    file.write_text(yaml.safe_dump({**VALID, **overlay}))
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "workflow/scripts/run.py",
            "train",
            "--configfile",
            file,
            "--cell",
            "fmnist/iid/10/FED/none/seed0",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "canary").exists()
