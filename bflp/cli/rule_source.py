"""A look at the source of the rules that a grid names, before anything runs. Nothing of them is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from bflp import aggregators
from bflp.errors import ConfigError
from bflp.grid.plan import Plan

ARGUMENTS = ("means", "log_variances", "weights", "settings", "generator")


def check_rules(plan: Plan) -> None:
    """Raise ConfigError, naming file and line, for a rule without a function `aggregate` of five arguments."""
    for name in dict.fromkeys(cell.aggregator for cell in plan.cells if cell.variational):
        own = plan.settings.aggregator_files.get(name)
        check(Path(own) if own else Path(aggregators.__file__).with_name(f"{name.lower()}.py"))


def check(file: Path) -> None:
    """As `check_rules`, for one file."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    except SyntaxError as error:
        raise ConfigError(f"{file}, line {error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise ConfigError(f"{file} is no Python source ({error})") from None
    definitions = [definition for definition in tree.body if "aggregate" in _names(definition)]
    if not definitions:
        raise ConfigError(f"{file} must define a function `aggregate({', '.join(ARGUMENTS)})`")
    last = definitions[-1]
    if isinstance(last, ast.FunctionDef) and not _takes(last.args, len(ARGUMENTS)):
        raise ConfigError(
            f"{file}, line {last.lineno}: `aggregate` must take {len(ARGUMENTS)} arguments: {', '.join(ARGUMENTS)}"
        )


def _names(statement: ast.stmt) -> Iterator[str]:
    """What a statement of a module defines, also inside `if` and `try`."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            # `from ... import *` may define anything.
            yield "aggregate" if node.name == "*" else (node.asname or node.name)


def _takes(arguments: ast.arguments, count: int) -> bool:
    """Whether a function can be called with so many positional arguments and nothing else."""
    most = len(arguments.posonlyargs) + len(arguments.args)
    least = most - len(arguments.defaults)
    return least <= count and (count <= most or arguments.vararg is not None) and None not in arguments.kw_defaults
