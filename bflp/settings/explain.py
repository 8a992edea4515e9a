"""Mistakes in settings, in words: one line each, with the nearest name that is known."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from bflp.settings.outline import places
from bflp.settings.read import written_in

# Mistakes that are told at once, and about so many characters of them.
MOST_MISTAKES = 20
MOST_TEXT = 1500
UNKNOWN_KEY = "unknown key"
# What earlier versions called it.
RENAMED = {
    "aggregator_files": "aggregators: {NAME: {file: ...}}",
    "ppa_population": "aggregators: {PPA: {population: ...}}",
    "checkpoint": "checkpoint_seconds",
    "adaptive_ece": "ace",
    "maximum_calibration_error": "mce",
    "aleatoric": "expected_entropy",
    "epistemic": "mutual_information",
}


def one_line(error: ValidationError, files: Sequence[Path] = (), full: dict[str, Any] | None = None) -> str:
    """All mistakes, each with its place; files: the config files, of which the one that holds it is named; full: the
    JSON schema of all settings, for keys that belong elsewhere."""
    texts = []
    for detail in error.errors(include_url=False):
        text = ": ".join(filter(None, (_place(detail["loc"]), _elsewhere(detail, _text(detail, ()), full))))
        # What concerns several settings names its place in its text.
        place = detail["loc"] or text.partition(": ")[0].split(".")
        texts.append(": ".join(filter(None, (written_in(files, place, detail["input"]), text))))
    mistakes = list(dict.fromkeys(texts))
    told: list[str] = []
    for mistake in mistakes[:MOST_MISTAKES]:
        # What is known there is listed once.
        listed = re.search(r" \(known: [^)]*\)", mistake)
        text = mistake.replace(listed[0], "") if listed and any(listed[0] in earlier for earlier in told) else mistake
        if told and sum(map(len, told)) + len(text) > MOST_TEXT:
            break
        told.append(text)
    left = len(mistakes) - len(told)
    return "; ".join(told) + (f"; and {left} more" if left else "")


def explained(error: ValidationError, keys: Iterable[str]) -> ValidationError:
    """The same mistakes in words; keys: those that are known here, for a misspelt one."""
    details = error.errors(include_url=False)
    return ValidationError.from_exception_data(
        error.title, [_mistake(_text(detail, keys), detail["loc"], detail["input"]) for detail in details]
    )


def wrong(text: str, *location: object) -> ValidationError:
    """A mistake at a place below that of the validator that raises this."""
    return ValidationError.from_exception_data("settings", [_mistake(text, tuple(map(str, location)), None)])


def require(where: str, names: Iterable[Any], known: Iterable[Any], otherwise: str = "") -> None:
    """Raise ValueError for the first name that is not known. otherwise: what else can be done."""
    known = list(known)
    for name in names:
        if name not in known:
            listed = "; ".join(filter(None, [", ".join(map(str, known)) or "none", otherwise]))
            raise ValueError(f"{where and where + ': '}unknown {shown(name)}{nearest(name, known)} (known: {listed})")


def nearest(name: Any, known: Iterable[Any]) -> str:
    """- did you mean ...?, or nothing."""
    if not isinstance(name, str) or len(name) > 100:
        return ""
    if name in RENAMED:
        return f" - it is now `{RENAMED[name]}`"
    by_lower = {str(candidate).lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f" - did you mean {by_lower[near[0]]!r}?" if near else ""


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
_REPR.maxlevel = 2


def shown(value: Any) -> str:
    """A value of a config as people know it, shortened: aliases of aliases can make it longer than memory."""
    try:
        return "empty" if value is None else _REPR.repr(value)
    except ValueError:
        return "a number of too many digits"


def _mistake(text: str, location: tuple[Any, ...], value: Any) -> InitErrorDetails:
    kind = PydanticCustomError("mistake", "{text}", {"text": text})
    return InitErrorDetails(type=kind, loc=location, input=value)


def _place(location: tuple[Any, ...]) -> str:
    parts = [str(part) for part in location if part != "[key]"]
    return ".".join(part if part.isprintable() and len(part) <= 80 else shown(part) for part in parts)


def _elsewhere(detail: Any, text: str, full: dict[str, Any] | None) -> str:
    """Of an unknown key where it would be known, if anywhere, unless it is a known one but for a letter."""
    if full is None or not text.startswith(UNKNOWN_KEY) or "it is now" in text:
        return text
    *above, key = detail["loc"]
    if (meant := re.search("did you mean '(.*)'", text)) and difflib.get_close_matches(key, [meant[1]], cutoff=0.8):
        return text
    found = places(key, above[0] if above else "", full)[:3]
    return f"{UNKNOWN_KEY} here - it belongs in {' or in '.join(found)}" if found else text


def _text(detail: Any, keys: Iterable[str]) -> str:
    """One of pydantic's errors, without its place."""
    kind, context, given = detail["type"], detail.get("ctx", {}), f"(is {shown(detail['input'])})"
    match kind:
        case "mistake":
            return str(context["text"])
        case "value_error":
            return str(context["error"])
        case "extra_forbidden":
            near, listed = nearest(detail["loc"][-1], keys), ", ".join(keys)
            return f"{UNKNOWN_KEY}{near}" + (f" (known: {listed})" if listed and not near else "")
        case "missing":
            return "is missing"
        case "literal_error":
            known = re.findall(r"'([^']*)'", context["expected"])
            return f"unknown {shown(detail['input'])}{nearest(detail['input'], known)} (known: {', '.join(known)})"
        case "too_short" if context.get("actual_length") == 0:
            return "must not be an empty list"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must be a mapping {given}"
        case "list_type" | "tuple_type" | "is_instance_of" | "sequence_str":
            return f"must be a list {given}"
        case "too_short" | "too_long":
            return f"must be a list of {context.get('min_length', context.get('max_length'))} {given}"
    message = detail["msg"].replace("Input should be", "must be")
    return f"{message[0].lower()}{message[1:]} {given}"
