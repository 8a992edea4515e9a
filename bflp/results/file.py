"""The JSON result of a cell: written whole, with a checksum, so that a damaged file is noticed.

The checksum lies in `environment`, since it covers times and versions, too, which differ from run to run.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from bflp.files import canonical_json, write_text


def checksum(result: dict[str, Any]) -> str:
    """sha256 of everything in a result but the checksum itself."""
    environment = {key: value for key, value in result["environment"].items() if key != "checksum"}
    content = {**result, "environment": environment}
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result with its checksum; one line per evaluated round."""
    result = {**result, "environment": {**result["environment"], "checksum": checksum(result)}}
    lines = []
    for key, value in result.items():
        text = json.dumps(value, allow_nan=False)
        if key == "rounds":
            text = "[\n  " + ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in value) + "\n ]"
        lines.append(f' "{key}": {text}')
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")
