"""An algorithm as clients and server call it, with its mistakes told in one line that names its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bflp.engine.errors import NotFiniteError
from bflp.engine.local import Chosen, Facts, Local
from bflp.runtime.errors import HopelessError
from bflp.settings.own_files import described

_PLAIN = "tensors (detached, not bfloat16)"


class CheckedAlgorithm(Chosen):
    """Raises HopelessError, saying when, if a function of the file raises or returns anything else than it should."""

    def __init__(self, file: Path, module: Any, settings: Any) -> None:
        super().__init__(module, settings)
        self.file = file

    def local(self, *given: Any) -> Any:
        return self._checked(super().local, given, _check_local)

    def report(self, *given: Any) -> Any:
        def check(found: Any, facts: Facts) -> None:
            if not all(map(_is_state, _two(found))):
                raise TypeError(f"`report` must return two mappings from names to {_PLAIN}, message and state")

        return self._checked(super().report, given, check)

    def server(self, model: Tensor, *given: Any) -> Any:
        def check(found: Any, facts: Facts) -> None:
            new, state = _two(found)
            if not _is_plain(new) or new.shape != model.shape or not _is_state(state):
                shape = tuple(model.shape)
                raise TypeError(f"`server` must return a model of shape {shape} and a mapping from names to {_PLAIN}")
            if missing := set(getattr(self.module, "BROADCAST", ())) - state.keys():
                raise ValueError(f"the state that `server` returns lacks {min(missing)!r}, which BROADCAST names")

        return self._checked(super().server, (model, *given), check)

    def _checked(
        self, function: Callable[..., Any], given: tuple[Any, ...], check: Callable[[Any, Facts], None]
    ) -> Any:
        """What the function returns. check: raises for what it must not return."""
        facts = next(each for each in given if isinstance(each, Facts))
        when = f"in round {facts.round}" + ("" if facts.client is None else f", client {facts.client}")
        try:
            found = function(*given)
            check(found, facts)
        except NotFiniteError:
            raise
        except Exception as error:
            raise HopelessError(f"the algorithm failed {when}: {described(self.file, error)}") from None
        return found


def _check_local(found: Any, facts: Facts) -> None:
    if not isinstance(found, Local):
        raise TypeError("`local` must return a Local")
    if found.pull is not None and found.anchor is None:
        raise ValueError("Local: a pull needs an anchor")
    posterior = facts.settings.posterior
    if posterior is not None and posterior.kind == "ivon":
        if not found.kl_weight > 0:
            raise ValueError(f"Local: posterior ivon needs a kl_weight above 0 (is {found.kl_weight})")
        for name in ("after_step", "sent", "through"):
            if getattr(found, name) is not None:
                raise ValueError(f"Local: posterior ivon takes no {name}")


def _two(found: Any) -> tuple[Any, Any]:
    return found if isinstance(found, tuple) and len(found) == 2 else (None, None)


def _is_state(found: Any) -> bool:
    return isinstance(found, Mapping) and all(map(_is_plain, found.values()))


def _is_plain(found: Any) -> bool:
    """Whether it goes through a pipe as an array."""
    return isinstance(found, Tensor) and not found.requires_grad and found.dtype != torch.bfloat16
