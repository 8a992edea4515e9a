"""A person's own algorithm as clients and server call it, with its mistakes told in one line that names its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from bflp.engine.errors import NotFiniteError
from bflp.engine.local import Chosen, Facts, Local
from bflp.runtime.errors import HopelessError
from bflp.settings.rules import described


class OwnAlgorithm(Chosen):
    """Raises HopelessError, saying when, if a function of the file raises or returns anything else than it should."""

    def __init__(self, file: Path, module: Any, settings: Any) -> None:
        super().__init__(module, settings)
        self.file = file

    def local(self, *given: Any) -> Any:
        return self._checked(super().local, given, "a Local", lambda found: isinstance(found, Local))

    def report(self, *given: Any) -> Any:
        what = "two mappings from names to tensors, message and state"
        return self._checked(super().report, given, what, lambda found: all(map(_is_state, _two(found))))

    def server(self, model: Tensor, *given: Any) -> Any:
        what = f"a model of shape {tuple(model.shape)} and a mapping from names to tensors"

        def is_right(found: Any) -> bool:
            new, state = _two(found)
            return isinstance(new, Tensor) and new.shape == model.shape and _is_state(state)

        return self._checked(super().server, (model, *given), what, is_right)

    def _checked(
        self, function: Callable[..., Any], given: tuple[Any, ...], what: str, is_right: Callable[[Any], bool]
    ) -> Any:
        facts = next(each for each in given if isinstance(each, Facts))
        when = f"in round {facts.round}" + ("" if facts.client is None else f", client {facts.client}")
        try:
            found = function(*given)
            if not is_right(found):
                raise TypeError(f"`{function.__name__}` must return {what}")
        except NotFiniteError:
            raise
        except Exception as error:
            raise HopelessError(f"the algorithm failed {when}: {described(self.file, error)}") from None
        return found


def _two(found: Any) -> tuple[Any, Any]:
    return found if isinstance(found, tuple) and len(found) == 2 else (None, None)


def _is_state(found: Any) -> bool:
    return isinstance(found, Mapping) and all(isinstance(part, Tensor) for part in found.values())
