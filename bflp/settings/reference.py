"""The settings reference and the config's JSON schema, generated from the typed settings.

`python -m bflp.settings.reference` writes docs/settings.md and docs/config.schema.json.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from bflp import aggregators, algorithms
from bflp.files import write_text
from bflp.settings.outline import parts, sections
from bflp.settings.schema import Settings
from bflp.settings.values import section_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
HEAD = """# Settings

Generated from `bflp/settings` by `python -m bflp.settings.reference`. A config file is YAML; `config.yaml`
holds the paper's grid. `snakemake --configfile yours.yaml` lays yours over it: mappings merge, lists replace, and so
does a mapping with another `strategy`, `name`, `kind` or `file`. Unknown keys and values out of range are refused
before anything runs, except for those of a network of your own, whose values its cells refuse when they start. Editors
that know `docs/config.schema.json` complete the keys. Settings that algorithms and rules have of their own are at the
end, those of networks in [own-network.md](own-network.md#built-in-networks).
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
        lines += _described(name or "Top level", section["description"], section, full["$defs"])
    for name, module in _with_own_settings():
        section, about = section_of(module.Settings).model_json_schema(), _meanings(module.Settings)
        for key, value in section["properties"].items():
            value["description"] = about[key]
        lines += _described(name, str(module.__doc__).split("\n\n")[0], section, {})
    return "\n".join(lines).rstrip() + "\n"


def _described(name: str, text: str, section: dict[str, Any], defs: dict[str, Any]) -> list[str]:
    """Heading, text, and a table of the section's keys."""
    lines = [f"## {name}", "", _plain(text), ""]
    lines += ["| key | values | default | meaning |", "| --- | --- | --- | --- |"]
    for key, value in section["properties"].items():
        default = "required" if key in section.get("required", ()) else _default(value)
        about = value.get("description") or next((part["description"] for part in parts(value, defs)), "")
        row = f"`{key}`", _values(value), default, _plain(about)
        lines.append("| " + " | ".join(part.replace("|", "\\|") for part in row) + " |")
    return [*lines, ""]


def _with_own_settings() -> Iterator[tuple[str, ModuleType]]:
    """The built-in algorithms and rules that have settings of their own, by where these stand in a config."""
    places = {f"models.<name>.algorithm (name: {name})": f"algorithms.{name}" for name in algorithms.names()}
    places |= {f"aggregators.{name}": f"aggregators.{name.lower()}" for name in aggregators.names()}
    for place, name in places.items():
        module = importlib.import_module(f"bflp.{name}")
        if hasattr(module, "Settings"):
            yield place, module


def _meanings(settings: type) -> dict[str, str]:
    """What a dataclass says of its fields: the text below each."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    return {
        field.target.id: text.value.value
        for field, text in pairwise(getattr(made, "body", []))
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


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
