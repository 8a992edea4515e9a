"""One string for code: it changes when the code's meaning does, and only then.

A fingerprint covers the import closure, within this project, of the modules that it starts from: every `import`
statement counts, also one inside a function. Each module's syntax tree is hashed without comments, docstrings and
positions. Installed packages are not covered; their versions stand in the results.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bflp.errors import UserError

ROOT = Path(__file__).resolve().parent.parent


def fingerprint(modules: tuple[str, ...], files: tuple[str, ...] = ()) -> str:
    """The fingerprint of the import closure of `modules` and of Python files outside the package."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(_read(Path(file)).digest.encode())
    for module in sorted(import_closure(modules, files)):
        digest.update(f"\n{module} {_module_digest(module)}".encode())
    return digest.hexdigest()[:16]


def digests(modules: tuple[str, ...], files: tuple[str, ...] = ()) -> dict[str, str]:
    """A short digest of each module and file that the fingerprint covers."""
    result = {module: _module_digest(module)[:8] for module in sorted(import_closure(modules, files))}
    return result | {file: _read(Path(file)).digest[:8] for file in files}


@cache
def import_closure(modules: tuple[str, ...], files: tuple[str, ...] = ()) -> frozenset[str]:
    """All modules of the project that `modules` and `files` can import, packages' __init__ included."""
    found: set[str] = set()
    waiting = [*modules, *(name for file in files for name in _read(Path(file)).imports)]
    while waiting:
        module = waiting.pop()
        if module in found or (file := _file(module)) is None:
            continue
        found.add(module)
        if "." in module:
            waiting.append(module.rpartition(".")[0])
        waiting.extend(_read(file).imports)
    return frozenset(found)


def forget() -> None:
    """Clear the caches: the next fingerprint reads the files again."""
    for cached in (_file, import_closure, _module_digest):
        cached.cache_clear()


def module_path(module: str) -> str:
    """Where a module lies or would lie, relative to the project; a file outside the package is named as it is."""
    if module.endswith(".py"):
        return module
    file = _file(module)
    return str(file.relative_to(ROOT)) if file else f"{module.replace('.', '/')}.py"


@cache
def _file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


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
        return _analyse(file.read_bytes())
    except SyntaxError as error:
        raise UserError(f"{file}, line {error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise UserError(f"{file} is not Python source ({error})") from None


@cache
def _analyse(source: bytes) -> _Source:
    # Cached by content, so it is never out of date.
    imports: list[str] = []
    meaning = _meaning(ast.parse(source), imports)
    return _Source(hashlib.sha256(meaning.encode()).hexdigest(), tuple(imports))


def _meaning(node: object, imports: list[str]) -> str:
    """As ast.dump, but without docstrings and empty fields: new Python versions add fields, and those are empty in old
    code. Adds to `imports` what may be modules; relative imports are not used in this project."""
    if isinstance(node, list):
        return f"[{','.join([_meaning(part, imports) for part in node])}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Import):
        imports.extend(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        # `from package import name`: the name may be a module or something defined in the package.
        imports.extend([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    fields = []
    for name in node._fields:
        value = getattr(node, name, None)
        if name == "body" and isinstance(value, list):
            # Docstrings, of attributes too: a text that stands alone does nothing.
            value = [part for part in value if not _is_text(part)]
        if value not in (None, []):
            fields.append(f"{name}={_meaning(value, imports)}")
    return f"{type(node).__name__}({','.join(fields)})"


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
