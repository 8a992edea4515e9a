"""What a config says of a network, checked before anything runs. A person's own file is parsed, never run."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

from pydantic import create_model

from bflp import networks
from bflp.settings.explain import nearest, shown, wrong
from bflp.settings.values import Section


def checked_network(spec: Mapping[str, Any]) -> dict[str, Any]:
    """{"name": ...} or {"file": ...}, and settings of the network's own. Raises ValueError in one line."""
    given = dict(spec)
    name, file = given.pop("name", None), given.pop("file", None)
    if (name is None) == (file is None):
        raise ValueError("a network is given by its name, or by a file, as in {file: mine.py}")
    if file is None and name not in networks.BUILT_IN:
        known = ", ".join(networks.BUILT_IN)
        raise wrong(f"unknown {shown(name)}{nearest(name, networks.BUILT_IN)} (known: {known}; or a file)", "name")
    path = Path(networks.__file__).with_name(f"{name}.py") if file is None else Path(file)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise wrong(f"{path} cannot be read ({error.strerror})", "file") from None
    except SyntaxError as error:
        raise wrong(f"{path}, line {error.lineno}: {error.msg}", "file") from None
    except ValueError as error:
        raise wrong(f"{path} is not a Python source ({error})", "file") from None
    builds = [node.args for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "build"]
    if not builds:
        raise wrong(f"{path} must define a function build(image_shape, labels) that returns a torch.nn.Module", "file")
    last = builds[-1]
    known_settings = [argument.arg for argument in (*last.args[2:], *last.kwonlyargs)]
    for key in given:
        if key not in known_settings and last.kwarg is None:
            near, known = nearest(key, known_settings), ", ".join(known_settings) or "none"
            raise wrong(f"unknown key{near or f' (known: {known})'}", key)
    return {"name": name, **_checked(name, given)} if given and name else dict(spec)


def _checked(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are given of a built-in network, checked by the annotations of its `build`."""
    module = importlib.import_module(f"bflp.networks.{name}")
    # Of these alone: that of what it returns needs torch.
    annotations = {key: module.build.__annotations__[key] for key in given}
    hints = get_type_hints(SimpleNamespace(__annotations__=annotations), vars(module), include_extras=True)
    fields: dict[str, Any] = {key: (hint, ...) for key, hint in hints.items()}
    model = create_model("Own", __base__=Section, **fields)
    return model.model_validate(given).model_dump(mode="json")
