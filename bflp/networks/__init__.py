"""Networks, as functions of a flat parameter vector: by name, or from a person's own file.

A network's module is imported only when it is used, so that a change of one network concerns no other. An architecture
is one file with `build(image_shape, labels, **settings) -> torch.nn.Module`. Imports no torch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from bflp.networks.layout import Layout
    from bflp.networks.posterior import Posterior

BUILT_IN = ("lenet", "mlp", "cnn", "resnet20")
FAST_LENET = ("none", "dense", "last:3")  # the posteriors that the hand-written LeNet has


class NetworkError(ValueError):
    """A network that cannot be built or trained: what is wrong with it and what to do, in one line."""


class Network(Protocol):
    """Loss, gradient and predictions with parameters given as a flat vector [D].

    Vectors, inputs, labels, noise and generators are on `device`. One object must not be used by two threads at a time.
    """

    @property
    def layout(self) -> Layout: ...
    @property
    def input_shape(self) -> tuple[int, ...]: ...
    @property
    def labels(self) -> int: ...
    @property
    def posterior(self) -> Posterior: ...
    @property
    def device(self) -> torch.device: ...

    def gradient(
        self, vector: Tensor, images: Tensor, labels: Tensor, noise: Tensor | None, kl_weight: float, out: Tensor
    ) -> Tensor:
        """The loss of a batch, a scalar; writes its gradient by the parameters into `out` [D].

        vector [D]; images float32, [B, C, H, W] in [0, 1] or features [B, F]; labels int64 [B]; noise [B, noise_size]
        standard normal numbers, or None where the layout's noise_size is 0, or for a pass without dropout where no
        weight is Gaussian.

        loss = mean cross entropy + kl_weight * KL(q || prior) summed over all Gaussian weights, in nats; with
        kl_weight 0 the gradient is that of the data alone.
        """
        ...

    def predict(
        self, vector: Tensor, images: Tensor, samples: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """(probabilities [B, L], mean entropy [B] in nats), averaged over Monte Carlo samples.

        A network without Gaussian weights has one sample and draws nothing.
        """
        ...

    def module(self, vector: Tensor) -> torch.nn.Module:
        """A plain module, in evaluation mode, whose weights are the means of a vector [D]."""
        ...


def modules(spec: Mapping[str, Any], variational: str) -> tuple[str, ...]:
    """The modules of the project that a network's code starts from; a person's own file comes in addition."""
    if is_fast(spec, variational):
        return ("bflp.networks.lenet",)
    return ("bflp.networks.plain", *([] if "file" in spec else [f"bflp.networks.{spec['name']}"]))


def build(
    spec: Mapping[str, Any],
    input_shape: tuple[int, ...],
    labels: int,
    variational: str,
    posterior: Posterior,
    device: torch.device | str,
) -> Network:
    """The network of a spec, {"name": ...} or {"file": ...} and its settings, for inputs (C, H, W) or (F,).

    variational: which weights are Gaussian: "none"; "dense": those of dense layers; "last:N": those of the last N dense
    and convolution layers; "all": every parameter. Raises NetworkError where the two do not go together.
    """
    if is_fast(spec, variational):
        lenet = importlib.import_module("bflp.networks.lenet")
        layout = lenet.LeNetLayout(input_shape, labels, variational != "none")
        return lenet.LeNet(layout, posterior, device)  # type: ignore[no-any-return]
    plain = importlib.import_module("bflp.networks.plain")
    own = {name: value for name, value in spec.items() if name not in ("name", "file")}
    make = partial(_builder(spec), input_shape, labels, **own)
    title = str(spec.get("file", f"network {spec.get('name')}"))
    network: Network = plain.PlainNetwork(title, make, input_shape, labels, variational, posterior, device)
    return network


def _builder(spec: Mapping[str, Any]) -> Callable[..., Any]:
    """The function `build` of the network's file."""
    if "name" in spec:
        return importlib.import_module(f"bflp.networks.{spec['name']}").build  # type: ignore[no-any-return]
    # Compiled here, not by importlib: its cache of byte code misses an edit within a second that keeps the length.
    module = ModuleType("bflp_own_network")
    module.__file__ = str(spec["file"])
    sys.modules[module.__name__] = module  # while it runs: dataclasses look there
    try:
        exec(compile(Path(spec["file"]).read_bytes(), spec["file"], "exec"), vars(module))
    except Exception as error:
        raise NetworkError(f"{spec['file']}: {type(error).__name__}: {' '.join(str(error).split())}") from None
    finally:
        del sys.modules[module.__name__]
    return module.build  # type: ignore[no-any-return]


def is_fast(spec: Mapping[str, Any], variational: str) -> bool:
    """Whether a network is the hand-written LeNet."""
    return spec.get("name") == "lenet" and variational in FAST_LENET
