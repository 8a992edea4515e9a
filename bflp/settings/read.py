"""Reading config files, and laying one over another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bflp.errors import ConfigError

# Keys that say what a mapping is: under another strategy the old one's settings mean nothing.
TAGS = ("strategy", "name", "kind", "file")


def overlaid(mappings: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    """Config mappings laid over each other. As Snakemake does, first those over the first, then these over it."""
    base, *others = mappings
    top: dict[Any, Any] = {}
    for other in others:
        top = laid(top, other)
    return laid(base, top)


def laid(base: Mapping[Any, Any], top: Mapping[Any, Any]) -> dict[Any, Any]:
    """`top` over `base`: mappings merge, all else replaces; so does a mapping that is tagged as something else."""
    result = dict(base)
    for key, value in top.items():
        old = base.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping) and not _another(old, value):
            result[key] = laid(old, value)
        elif value != {} or base.get(key) is None:
            result[key] = value
    return result


def _another(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> bool:
    """Whether `new` is something else than `old` by its tag. Tags are texts: mappings may use these words as names."""
    tags = [tag for tag in TAGS if isinstance(new.get(tag), str)]
    return any(isinstance(old.get(tag), str) for tag in TAGS) and any(old.get(tag) != new[tag] for tag in tags)


def read_file(file: Path) -> dict[Any, Any]:
    """The mapping that a config file holds. Raises ConfigError for a missing file or one without a YAML mapping."""
    try:
        mapping = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise ConfigError(f"there is no config file {file}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = "" if isinstance(error, _MisreadError) else "not valid YAML: "
        raise ConfigError(f"{file}{where}: {what}{error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(mapping, dict):
        raise ConfigError(f"{file} must hold a mapping of settings, such as `grid: ...`")
    if "__use_yte__" in mapping:
        raise ConfigError(f"{file}: `__use_yte__` is not supported; write the settings out as plain YAML")
    return mapping


def written_in(files: Iterable[Path], place: Sequence[object], value: object) -> str:
    """The file and line that a mistake is written in: of the last file that holds the most of a setting's place.

    value: what is wrong there; a file that says something else is not meant. Empty where no file holds any of it.
    """
    found, most = "", 0
    for file in filter(Path.exists, files):
        loader = _Loader(file.read_text(encoding="utf-8"))
        node, depth, line = loader.get_single_node(), 0, 0
        for part in place:
            # Parts that no node has are passed over: of a text that stands for a mapping, or not written at all.
            for key, child in node.value if isinstance(node, yaml.MappingNode) else ():
                if key.value == str(part):
                    node, depth, line = child, depth + 1, key.start_mark.line + 1
                    break
        other = isinstance(value, str | int | float) and isinstance(node, yaml.ScalarNode)
        # A text over the mapping of an earlier file stands for all of it. As texts: NaN is equal to nothing.
        replaces = isinstance(node, yaml.ScalarNode) and depth < len(place)
        if depth >= (1 if replaces else max(1, most)) and not (
            other and repr(loader.construct_object(node)) != repr(value)
        ):
            found, most = f"{file}, line {line}", depth
    return found


class _MisreadError(yaml.MarkedYAMLError):
    """A number that is not what it looks like."""


class _Loader(yaml.SafeLoader):
    """As YAML says, a mapping holds a key once; the safe loader alone lets the last one win. Numbers that are not what
    they look like are refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add((key.tag, key.value) if isinstance(key, yaml.ScalarNode) else key)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        is_whole = node.tag.endswith(":int")
        number: int | float = self.construct_yaml_int(node) if is_whole else self.construct_yaml_float(node)
        digits = node.value.replace("_", "").lstrip("+-")
        if ":" in node.value or (digits.isdigit() and int(digits) != abs(number)):
            raise _MisreadError(
                problem=f"{node.value} is read as {number}, in base {60 if ':' in node.value else 8}: write it in "
                "another way, or in quotes where it is a text",
                problem_mark=node.start_mark,
            )
        return number


for kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{kind}", _Loader.construct_number)
