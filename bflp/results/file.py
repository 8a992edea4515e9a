"""Reading and writing results and evaluations: whole, with a checksum, so that a damaged file is noticed.

The checksum lies in `environment`, since it covers times and versions, too, which differ from run to run.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from bflp.errors import DataError
from bflp.files import canonical_json, write_text
from bflp.grid.cell import Cell
from bflp.results.evaluation import Evaluation
from bflp.results.result import Result

Typed = TypeVar("Typed", Result, Evaluation)
_ADVICE = {"result": "delete it and run snakemake again", "evaluation": "run bflp evaluate"}


def read_result(path: Path, cell: Cell) -> Result:
    """A cell's result. Raises DataError, naming the file, when it is damaged, is not whole or is not of this cell."""
    return _read(path, cell, Result)


def read_evaluation(path: Path, cell: Cell) -> Evaluation:
    """The evaluation of a cell's final model. Raises DataError as `read_result` does."""
    return _read(path, cell, Evaluation)


def write(path: Path, content: Result | Evaluation) -> None:
    """Write it with its checksum; one line per field and evaluated round."""
    plain = content.model_dump(mode="json")
    plain["environment"]["checksum"] = checksum(plain)
    lines = []
    for key, value in plain.items():
        text = json.dumps(value, allow_nan=False)
        if key in ("rounds", "confusion") and value:
            text = "[\n  " + ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in value) + "\n ]"
        lines.append(f' "{key}": {text}')
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def checksum(content: dict[str, Any]) -> str:
    """sha256 of everything but the checksum itself."""
    environment = {key: value for key, value in content["environment"].items() if key != "checksum"}
    return hashlib.sha256(canonical_json({**content, "environment": environment}).encode()).hexdigest()


def _read(path: Path, cell: Cell, kind: type[Typed]) -> Typed:
    name = kind.__name__.lower()
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except FileNotFoundError:
        raise DataError(f"there is no {name} {path}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({error}): {_ADVICE[name]}") from None
    environment = content.get("environment") if isinstance(content, dict) else None
    if not isinstance(environment, dict) or "checksum" not in environment:
        raise DataError(f"{path} is not the {name} of a cell: {_ADVICE[name]}")
    if environment["checksum"] != checksum(content):
        raise DataError(f"{path} was changed after it was written (wrong checksum): {_ADVICE[name]}")
    try:
        typed = kind.model_validate(content)
    except pydantic.ValidationError as error:
        wrong = "; ".join(_explain(detail) for detail in error.errors(include_url=False)[:3])
        raise DataError(f"{path} does not have the form of the {name} of a cell ({wrong}): {_ADVICE[name]}") from None
    if typed.cell.model_dump() != cell.as_dict():
        raise DataError(f"{path} holds the {name} of another cell: {_ADVICE[name]}")
    return typed


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _explain(detail: Any) -> str:
    where = ".".join(map(str, detail["loc"]))
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if detail["type"] == "missing":
        return f"{where}: is missing"
    if detail["type"] == "extra_forbidden":
        return f"{where}: unknown field"
    message = detail["msg"].replace("Input should be", "must be")
    return f"{where}: {message[0].lower()}{message[1:]}"
