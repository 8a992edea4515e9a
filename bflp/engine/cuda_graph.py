"""CUDA graphs: many launches of small kernels, recorded once and then started with one call.

A training step is some hundred kernels of a few microseconds on a GPU, and each takes longer to launch than to run.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Replay:
    """Replays a function's kernels. Only one recording is kept, so one object serves one function at a time."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None

    def of(self, function: Callable[..., None]) -> Callable[..., None]:
        """The same function, quicker where it is called again and again with tensors of the same shapes.

        function: returns nothing and works in place, on tensors that stay where they are; it neither draws random
        numbers nor waits for the device. Its arguments may lie elsewhere in each call: they are copied. The first call
        executes it as it is; so does each call whose shapes are not the first one's.
        """
        own: list[Tensor] = []

        def call(*given: Tensor) -> None:
            if not own:
                self._execute(function, given)
                own.extend(tensor.clone() for tensor in given)
                self._record(function, own)
            elif given[0].shape == own[0].shape:
                assert self.graph is not None
                for to, from_ in zip(own, given, strict=True):
                    to.copy_(from_)
                self.graph.replay()
            else:
                function(*given)

        return call

    def once(self, function: Callable[[], None]) -> Callable[[], None]:
        """The same for a function without arguments, which finds all that changes in tensors that stay where they are.
        The recording of its first call serves for ever; so the object must serve no other function."""

        def call() -> None:
            if self.graph is None:
                self._execute(function, ())
                self._record(function, [])
            else:
                self.graph.replay()

        return call

    def _execute(self, function: Callable[..., None], given: tuple[Tensor, ...]) -> None:
        """On the stream that will record, so that libraries have allocated there what they keep."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            function(*given)
        torch.cuda.current_stream().wait_stream(self.stream)

    def _record(self, function: Callable[..., None], arguments: list[Tensor]) -> None:
        # In the memory of the recording before, which lives until then: each new pool would stay allocated.
        pool = None if self.graph is None else self.graph.pool()
        graph = torch.cuda.CUDAGraph()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool)
            function(*arguments)
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        self.graph = graph
