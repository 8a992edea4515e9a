"""The `bflp` command. Each verb is a file in this folder, found by its name; adding a file adds a verb.

A verb's file has a docstring, which is its help (the first line: its summary in the list of verbs), and the functions
`add_arguments(parser)` and `run(arguments)`. Only the file of the verb that was asked for is imported.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from bflp.errors import UserError
from bflp.runtime.termination import run_script

FOLDER = Path(__file__).resolve().parent
HELPERS = ("__init__", "arguments", "common")
RUN = Path("workflow", "scripts", "run.py")
# Sums must not depend on how many threads a library would take.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def main(words: Sequence[str] | None = None) -> None:
    """Run a verb and end as programs do. words: its name and arguments; None: from the command line."""
    # Before a verb is imported, and numpy with it.
    os.environ.update(ONE_THREAD)
    if words is None:
        words = sys.argv[1:]
        _go_to_the_project(words)
    run_script(lambda: _run(words))


def verbs() -> list[str]:
    """The names of all verbs."""
    return sorted(file.stem.replace("_", "-") for file in FOLDER.glob("*.py") if file.stem not in HELPERS)


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb's arguments."""
    module = importlib.import_module(_module(verb))
    parser = argparse.ArgumentParser(
        prog=f"bflp {verb}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(parser)
    return parser


def _run(words: Sequence[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
    elif words[0] not in verbs():
        near = get_close_matches(words[0], verbs(), n=1)
        raise UserError(
            f"bflp has no verb {words[0]!r}"
            + (f" - did you mean '{near[0]}'?" if near else "; `bflp --help` lists all")
        )
    else:
        arguments = parser_of(words[0]).parse_args(words[1:])
        importlib.import_module(_module(words[0])).run(arguments)


def _overview() -> str:
    width = max(map(len, verbs())) + 2
    lines = [f"  {verb:{width}}{_summary(verb)}" for verb in verbs()]
    return "usage: bflp VERB ...\n\n" + "\n".join(lines) + "\n\n`bflp VERB --help` says more about each."


def _summary(verb: str) -> str:
    # Read, not imported: some verbs import torch.
    source = FOLDER.joinpath(f"{verb.replace('-', '_')}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def _module(verb: str) -> str:
    return f"bflp.cli.{verb.replace('-', '_')}"


def _go_to_the_project(words: Sequence[str]) -> None:
    """In the folder of another copy of the project, run that copy, as snakemake does."""
    if RUN.is_file() and RUN.resolve() != FOLDER.parents[1] / RUN:
        os.execv(sys.executable, [sys.executable, str(RUN), *words])
