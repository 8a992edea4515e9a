"""What a setting may be: names, numbers, paths, and sections of settings. Every value is checked where it is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bflp import aggregators
from bflp.settings.explain import explained, nearest, shown, wrong
from bflp.settings.read import laid

# Braces are Snakemake's wildcards; control characters and quotes only ever come from mistakes.
_BAD_IN_PATH = re.compile(r"[{}\x00-\x1f\"'`$\\*?]")


def _not_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def as_text(value: Any) -> Any:
    """Numbers as texts: 10 and "10" are one name."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def checked_name(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a name; put it in quotes")
    text = as_text(value)
    if isinstance(text, str) and (not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{,99}", text) or ".." in text):
        raise ValueError(
            f"the name {shown(text)} may hold only letters, digits and . _ + - (at most 100) and must begin with a "
            "letter or digit"
        )
    return text


def by_name(value: Any) -> Any:
    """A mapping with texts as keys; what stands there as a number and as a text merges."""
    if not isinstance(value, Mapping):
        return value
    result: dict[Any, Any] = {}
    for key, entry in value.items():
        result = laid(result, {as_text(key): entry})
    return result


def once(values: list[Any]) -> list[Any]:
    twice = sorted({str(value) for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"lists {', '.join(twice)} more than once")
    return values


def checked_path(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise ValueError("must be a path, not empty")
    if _BAD_IN_PATH.search(value):
        raise ValueError("must be a path without braces, quotes, wildcards, '$', backslashes or control characters")
    if value.startswith(("~", "-")):
        raise ValueError("must be a path that does not begin with '~' (it is not expanded) or '-'")
    try:
        parts = value.encode().split(b"/")
    except UnicodeEncodeError:
        raise ValueError("must be a path of characters that file names can have") from None
    if len(value) > 1000 or max(map(len, parts)) > 200:
        raise ValueError("must be a shorter path: at most 1000 characters, and 200 bytes between two slashes")
    # Without doubled or trailing slashes: file names are compared as text.
    path = str(Path(value))
    if path == ".":
        raise ValueError("must be a path other than the present folder's")
    return path


Value = TypeVar("Value")
NUMBER = BeforeValidator(_not_boolean)
PositiveInt = Annotated[int, Field(gt=0, lt=2**31), NUMBER]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**31), NUMBER]
Seed = Annotated[int, Field(ge=0, lt=2**32), NUMBER]
AnyFloat = Annotated[float, NUMBER]
PositiveFloat = Annotated[float, Field(gt=0), NUMBER]
NonNegativeFloat = Annotated[float, Field(ge=0), NUMBER]
Share = Annotated[float, Field(ge=0, le=1), NUMBER]
PositiveShare = Annotated[float, Field(gt=0, le=1), NUMBER]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1), NUMBER]
PathText = Annotated[str, BeforeValidator(checked_path)]
Name = Annotated[str, BeforeValidator(checked_name, json_schema_input_type=str | float)]
ByName = Annotated[dict[Name, Value], BeforeValidator(by_name)]
Some = Annotated[list[Value], Field(min_length=1), AfterValidator(once)]


class Section(BaseModel):
    """A part of the settings; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, value: Any, handler: pydantic.ModelWrapValidatorHandler[Any]) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            raise explained(error, cls.model_fields) from None


def neutral(value: Any) -> Any:
    """A field that was added later: with this value all is as before, and `identity` leaves it out."""
    return Field(default=value, json_schema_extra={"neutral": value})


def identity(section: BaseModel) -> dict[str, Any]:
    """The section as JSON, without fields at their neutral value: settings that mean the same give the same."""
    result = section.model_dump(mode="json")
    for key, about in type(section).model_fields.items():
        value, extra = getattr(section, key), about.json_schema_extra
        if isinstance(value, BaseModel):
            result[key] = identity(value)
        if isinstance(extra, dict) and "neutral" in extra and value == extra["neutral"]:
            del result[key]
    return result


@cache
def section_of(settings: type | None) -> type[Section]:
    """The section for a dataclass of settings, without those that every rule has."""
    model: dict[str, Any] = {}
    if settings is not None:
        hints, plain = get_type_hints(settings, include_extras=True), get_type_hints(settings)
        shared = {own.name for own in fields(aggregators.AggregationSettings)}
        for own in (own for own in fields(settings) if own.name not in shared):
            hint = Annotated[hints[own.name], NUMBER] if plain[own.name] in (int, float) else hints[own.name]
            model[own.name] = (hint, ... if own.default is MISSING else own.default)
    return pydantic.create_model("Own", __base__=Section, **model)


def checked(settings: type | None, given: Any) -> dict[str, Any]:
    """The settings that an algorithm or a rule has of its own, as given or by default.

    settings: their dataclass, whose fields may be `Annotated`; None: there are none. Raises ValidationError.
    """
    return section_of(settings).model_validate(given).model_dump(mode="json")


def spelt_out(value: Any, tag: str, default: str | None = None) -> Any:
    """The mapping that a name alone stands for; default: the tag of a mapping that has none."""
    if isinstance(value, str):
        return {tag: value}
    return {tag: default, **value} if default and isinstance(value, Mapping) else value


def chosen_by(value: Any, tag: str, known: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """What a mapping's tag names, and its other keys."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping (is {shown(value)})")
    known, rest = list(known), dict(value)
    name = rest.pop(tag, None)
    if name not in known:
        what = "is missing" if name is None else f"unknown {shown(name)}{nearest(name, known)}"
        raise wrong(f"{what} (known: {', '.join(known)})", tag)
    return name, rest
