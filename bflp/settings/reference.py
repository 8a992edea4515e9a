"""The settings reference and the config's JSON schema, generated from the typed settings.

`python -m bflp.settings.reference` writes docs/settings.md and docs/config.schema.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bflp.files import write_text
from bflp.settings.outline import parts, sections
from bflp.settings.schema import Settings

DOCS = Path(__file__).resolve().parents[2] / "docs"
HEAD = """# Settings

Generated from `bflp/settings` by `python -m bflp.settings.reference`. A config file is YAML; `config.yaml`
holds the paper's grid. `snakemake --configfile yours.yaml` lays yours over it: mappings merge, lists replace, and so
does a mapping with another `strategy`, `name`, `kind` or `file`. Unknown keys and values out of range are refused
before anything runs, except for those of a network of your own, whose values its cells refuse when they start. Editors
that know `docs/config.schema.json` complete the keys.
"""
LIMITS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
TYPES = {"string": "text", "integer": "whole number", "boolean": "true or false", "object": "mapping"}


def reference() -> str:
    """docs/settings.md."""
    full, lines = Settings.model_json_schema(), [HEAD]
    found = list(sections("", full, full["$defs"]))
    for name, section in found:
        # A section that stands in several places is described where it stands highest.
        if min((other.count("."), other) for other, same in found if same is section)[1] != name:
            continue
        lines += [f"## {name or 'Top level'}", "", _plain(section["description"]), ""]
        lines += ["| key | values | default | meaning |", "| --- | --- | --- | --- |"]
        for key, value in section["properties"].items():
            default = "required" if key in section.get("required", ()) else _default(value)
            about = value.get("description") or next((part["description"] for part in parts(value, full["$defs"])), "")
            row = f"`{key}`", _values(value), default, _plain(about)
            lines.append("| " + " | ".join(text.replace("|", "\\|") for text in row) + " |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def schema() -> str:
    """docs/config.schema.json. Nothing is required: a config file may be laid over another."""
    full = Settings.model_json_schema()
    for part in (full, *full["$defs"].values()):
        if "strategy" not in part.get("required", ()):
            part.pop("required", None)
    return json.dumps(full, indent=1) + "\n"


def _values(value: dict[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(map(_values, value["anyOf"])))
    if "enum" in value or "const" in value:
        return ", ".join(f"`{choice}`" for choice in value.get("enum") or [value["const"]])
    if "prefixItems" in value:
        return f"[{', '.join(map(_values, value['prefixItems']))}]"
    if "items" in value:
        return f"list of {_values(value['items'])}"
    limits = [f"{sign} {value[key]:g}" for key, sign in LIMITS.items() if abs(value.get(key, 2**31)) < 2**31]
    kind = value.get("type", "object")
    return f"{TYPES.get(kind, kind)} {' and '.join(limits)}".rstrip()


def _default(value: dict[str, Any]) -> str:
    default = value.get("default")
    if "$ref" in value:
        return "see below"
    if isinstance(default, dict):
        default = next((default[tag] for tag in ("name", "kind") if tag in default), default)
    return "null" if default is None else f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _plain(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    write_text(DOCS / "settings.md", reference())
    write_text(DOCS / "config.schema.json", schema())
