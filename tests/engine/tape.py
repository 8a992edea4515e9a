"""A stand-in for CUDA graphs on the CPU, which also counts operations.

Like a graph, a tape holds the operations of one call with the memory that they read and write; played, it does these
again, whatever Python would do by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


class Tape(TorchDispatchMode):
    """Records what is done while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, out))
        return out

    def play(self) -> None:
        """Do the same operations again, with results at the same addresses."""
        for func, args, kwargs, out in self.operations:
            for then, now in zip(_tensors(out), _tensors(func(*args, **kwargs)), strict=True):
                if then.data_ptr() != now.data_ptr():
                    then.copy_(now)

    def storages(self) -> dict[int, int]:
        """The memory of all results, which lives as long as the tape: address -> bytes."""
        results = (tensor.untyped_storage() for *_, out in self.operations for tensor in _tensors(out))
        return {storage.data_ptr(): storage.nbytes() for storage in results}


def recorded(function: Callable[[], None]) -> Callable[[], None]:
    """As Replay.once: the first call is done and recorded, the others play that."""
    tape = Tape()

    def call() -> None:
        if tape.operations:
            tape.play()
        else:
            with tape:
                function()

    return call


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]
