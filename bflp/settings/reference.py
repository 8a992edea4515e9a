"""The settings reference and the config's JSON schema, generated from the typed settings.

`python -m bflp.settings.reference` writes docs/settings.md and docs/config.schema.json anew.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bflp.files import write_text
from bflp.settings.schema import Settings

DOCS = Path(__file__).resolve().parents[2] / "docs"
HEAD = """# Settings

Generated from `bflp/settings/schema.py` by `python -m bflp.settings.reference`. A config file is YAML; `config.yaml` holds the
paper's grid. `snakemake --configfile yours.yaml` lays yours over it: mappings merge, lists replace. Unknown keys and
values out of range are refused before anything runs. Editors that know `docs/config.schema.json` complete the keys.
"""


def reference() -> str:
    """docs/settings.md."""
    lines = [HEAD]
    for name, section in _sections("", Settings):
        lines += [
            f"## {name or 'Top level'}",
            "",
            _first_paragraph(section),
            "",
            "| key | values | default | meaning |",
        ]
        lines.append("| --- | --- | --- | --- |")
        for key, field in section.model_fields.items():
            row = (f"`{key}`", _values(field), _default(field), field.description or _about(field.annotation))
            lines.append("| " + " | ".join(text.replace("|", "\\|") for text in row) + " |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def schema() -> str:
    """docs/config.schema.json. Nothing is required: a config file may be laid over another."""
    value = Settings.model_json_schema()
    for part in (value, *value["$defs"].values()):
        if "strategy" not in part.get("required", ()):
            part.pop("required", None)
    return json.dumps(value, indent=1) + "\n"


def _sections(name: str, section: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    yield name, section
    for key, field in section.model_fields.items():
        for child in _models(field.annotation):
            inside = f"{name}.{key}" if name else key
            if typing.get_origin(field.annotation) is dict:
                inside += ".<clients>" if key == "setups" else ".<name>"
            strategy = child.model_fields.get("strategy")
            if strategy is not None:
                inside += f" (strategy: {typing.get_args(strategy.annotation)[0]})"
            yield from _sections(inside, child)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections within an annotation such as dict[str, Annotated[A | B, ...]]."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)


def _values(field: FieldInfo) -> str:
    texts = {"gt": "> {}", "ge": ">= {}", "lt": "< {}", "le": "<= {}"}
    limits = {key: getattr(part, key) for part in field.metadata for key in texts if hasattr(part, key)}
    if limits.get("gt", -math.inf) >= limits.get("ge", math.inf):
        del limits["ge"]
    if limits.get("lt", math.inf) <= limits.get("le", -math.inf):
        del limits["le"]
    constraints = [texts[key].format(f"{limits[key]:g}") for key in texts if abs(limits.get(key, math.inf)) < 2**31]
    return ", ".join([_type(field.annotation), *constraints])


def _type(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (list, tuple):
        inner = list(dict.fromkeys(_type(argument) for argument in arguments))
        return f"list of {inner[0]}" if origin is list else f"[{', '.join(_type(argument) for argument in arguments)}]"
    if origin is dict:
        return "mapping"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(argument) for argument in arguments))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
    return names.get(annotation, "text")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, BaseModel):
        return "see below"
    if field.default is None:
        return "null"
    return f"`{field.default if isinstance(field.default, str) else json.dumps(field.default)}`"


def _about(annotation: Any) -> str:
    models = list(_models(annotation))
    return _first_paragraph(models[0]) if len(models) == 1 else ""


def _first_paragraph(section: type[BaseModel]) -> str:
    return " ".join((section.__doc__ or "").split())


if __name__ == "__main__":
    write_text(DOCS / "settings.md", reference())
    write_text(DOCS / "config.schema.json", schema())
