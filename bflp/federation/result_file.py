"""The JSON result of a cell: written whole, with a checksum, so that a damaged file is noticed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from bflp.files import canonical_json, write_text


def checksum(result: dict[str, Any]) -> str:
    """sha256 of everything in a result but the checksum itself."""
    content = {key: value for key, value in result.items() if key != "checksum"}
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result with its checksum; one line per evaluated round."""
    result = {**result, "checksum": checksum(result)}
    lines = []
    for key, value in result.items():
        text = json.dumps(value, allow_nan=False)
        if key == "rounds":
            text = "[\n  " + ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in value) + "\n ]"
        lines.append(f' "{key}": {text}')
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")
