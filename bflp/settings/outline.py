"""Where each key of the settings stands, from their JSON schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def sections(name: str, section: dict[str, Any], defs: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The section and those within it, by where they stand in a config."""
    yield name, section
    for key, value in section["properties"].items():
        inside = ".".join(filter(None, [name, key, "<name>" if "additionalProperties" in value else ""]))
        for part in parts(value, defs):
            tags = [f" ({tag}: {about['const']})" for tag, about in part["properties"].items() if "const" in about]
            yield from sections(inside + "".join(tags), part, defs)


def parts(value: Any, defs: dict[str, Any]) -> list[dict[str, Any]]:
    """The sections that a value may be or hold."""
    if isinstance(value, dict) and "$ref" in value:
        return [defs[value["$ref"].rpartition("/")[2]]]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for item in inner for part in parts(item, defs)]


def places(key: str, near: str, full: dict[str, Any]) -> list[str]:
    """The sections that have a key, those below the top-level key `near` first, then the highest."""
    found = {
        name.partition(" (")[0] or "the top level"
        for name, section in sections("", full, full["$defs"])
        if key in section["properties"]
    }
    return sorted(found, key=lambda name: (not name.startswith(near), name.count("."), name))
