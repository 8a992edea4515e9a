"""One string for the code that a job runs: it changes when the code's meaning does, and only then.

The fingerprint covers the import closure, within this project, of the modules that a job starts from: every `import`
statement counts, also one inside a function. Each module's syntax tree is hashed without comments, docstrings and
positions. Installed packages are not covered; their versions stand in the results. Imports no torch.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bflp.errors import UserError
from bflp.grid.loaded import loaded_modules

ROOT = Path(__file__).resolve().parent.parent
RULE_FILE = "aggregator_file"
# Loaded with a training program to read the config and to take fingerprints; they compute nothing of a result.
NOT_COVERED = {
    "bflp.cli.common",
    "bflp.settings.schema",
    "bflp.datasets.built_in",
    "bflp.datasets.download",
    "bflp.datasets.registry",
    "bflp.runtime.device",
    "bflp.fingerprint",
    "bflp.grid.plan",
    "bflp.grid.loaded",
    "bflp.cli.rule_source",
}


def partition_modules(strategy: str) -> tuple[str, ...]:
    """The modules that making a partition starts from."""
    return ("bflp.partition.files", f"bflp.partition.{strategy}")


def cell_modules(job: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules that training a cell starts from, as its `cell`, `settings` and `aggregator_file` say."""
    settings = job["settings"]
    modules = ["bflp.runtime.cell", *partition_modules(settings["partition"]["strategy"])]
    if settings["augment"]:
        modules.append("bflp.engine.augment")
    if "posterior" in settings and not job.get("aggregator_file"):
        modules.append(f"bflp.aggregators.{job['cell']['aggregator'].lower()}")
    return tuple(modules)


def check_cell(job: Mapping[str, Any], loaded: Collection[str] = ()) -> dict[str, str]:
    """Raise UserError unless the code on disk has the job's fingerprint, and that covers all that was imported.

    loaded: the modules of the project that other processes of the cell have imported. Returns a short digest of each
    module that the fingerprint covers; the result records it, so that one can tell later which module was changed.
    """
    forget()
    modules, file = cell_modules(job), job.get("aggregator_file")
    if fingerprint(modules, file) != job["fingerprint"]:
        raise UserError(
            "the code was changed after this cell's job was made, so its result would not be of either version: "
            "run snakemake again"
        )
    outside = sorted(loaded_modules().union(loaded) - import_closure(modules, file) - NOT_COVERED)
    if outside:
        raise UserError(f"the cell ran code that its fingerprint does not cover: {', '.join(outside)}")
    return digests(modules, file)


def fingerprint(modules: tuple[str, ...], file: str | None = None) -> str:
    """The fingerprint of the import closure of `modules` and, if given, of a Python file outside the package."""
    digest = hashlib.sha256()
    if file is not None:
        digest.update(_read(Path(file)).digest.encode())
    for module in sorted(import_closure(modules, file)):
        digest.update(f"\n{module} {_module_digest(module)}".encode())
    return digest.hexdigest()[:16]


def digests(modules: tuple[str, ...], file: str | None = None) -> dict[str, str]:
    """A short digest of each module that the fingerprint covers; that of `file` is named RULE_FILE."""
    result = {module: _module_digest(module)[:8] for module in sorted(import_closure(modules, file))}
    if file is not None:
        result[RULE_FILE] = _read(Path(file)).digest[:8]
    return result


@cache
def import_closure(modules: tuple[str, ...], file: str | None = None) -> frozenset[str]:
    """All modules of the project that `modules` and `file` can import, packages' __init__ included."""
    found: set[str] = set()
    waiting = [*modules, *(_read(Path(file)).imports if file else ())]
    while waiting:
        module = waiting.pop()
        if module in found or _file(module) is None:
            continue
        found.add(module)
        if "." in module:
            waiting.append(module.rpartition(".")[0])
        waiting.extend(_imported_by(module))
    return frozenset(found)


def forget() -> None:
    """Drop what is remembered of the files, so that the next fingerprint reads them anew."""
    _file.cache_clear()
    import_closure.cache_clear()
    _imported_by.cache_clear()
    _module_digest.cache_clear()


def module_path(module: str) -> str:
    """Where a module lies or would lie, relative to the project."""
    file = _file(module)
    return str(file.relative_to(ROOT)) if file else f"{module.replace('.', '/')}.py"


@cache
def _file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


@cache
def _imported_by(module: str) -> tuple[str, ...]:
    file = _file(module)
    assert file is not None
    return _read(file).imports


@cache
def _module_digest(module: str) -> str:
    file = _file(module)
    assert file is not None
    return _read(file).digest


class _Source(NamedTuple):
    """What counts of a source: a digest of its meaning, and what may be modules that it imports."""

    digest: str
    imports: tuple[str, ...]


def _read(file: Path) -> _Source:
    try:
        return _analyse(file.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise UserError(f"{file}, line {error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise UserError(f"{file} is no Python source ({error})") from None


@cache
def _analyse(source: str) -> _Source:
    # Remembered by content, so there is never a reason to forget it.
    tree = ast.parse(source)
    imports = tuple(_imports(tree))
    return _Source(hashlib.sha256(_meaning(tree).encode()).hexdigest(), imports)


def _imports(tree: ast.Module) -> Iterator[str]:
    """What may be modules, imported anywhere in a tree. Relative imports are not used in this project."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from package import name`: the name may be a module or something defined in the package.
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from names


def _meaning(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:]
    return _dump(tree)


def _dump(node: object) -> str:
    """As ast.dump, but without empty fields: new Python versions add fields, and those are empty in old code."""
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in node._fields)
        return f"{type(node).__name__}({','.join(f'{k}={_dump(v)}' for k, v in fields if v not in (None, []))})"
    if isinstance(node, list):
        return f"[{','.join(map(_dump, node))}]"
    return repr(node)
