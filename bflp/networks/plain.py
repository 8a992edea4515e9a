"""Any plain torch module, made Bayesian: its parameters are slices of a flat vector, its gradient comes from autograd.

A dense or convolution layer with a Gaussian weight works by local reparameterisation: its output is drawn, from
N(f(x; mu), f(x^2; s^2) + 1e-8), not its weight (for a convolution, independently at each place). Every other Gaussian
parameter is drawn once per step. The divergence from the prior and its gradient are in closed form.

D. P. Kingma, T. Salimans, M. Welling: Variational Dropout and the Local Reparameterization Trick, 2015,
arXiv 1506.02557. D. Molchanov, A. Ashukha, D. Vetrov: Variational Dropout Sparsifies Deep Neural Networks, 2017,
arXiv 1701.05369 (convolutions).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

from bflp.networks import NetworkError
from bflp.networks.layers import Dropout
from bflp.networks.layout import Layout, Shapes
from bflp.networks.posterior import VARIANCE_FLOOR, Posterior, WeightDistributions

RUNNING = "running statistics are no parameters, so no rule would combine them: use GroupNorm"
Make = Callable[[], nn.Module]


def initial_module(make: Make, generator: torch.Generator) -> nn.Module:
    """A module whose initial weights follow from the CPU generator alone; torch's global one is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(generator.get_state())
        module = make()
        generator.set_state(torch.get_rng_state())
    return module


class PlainLayout(Layout):
    """Tensors are named as the module names its parameters; numbers and means start as the module's own weights."""

    def __init__(self, make: Make, deterministic: Shapes, gaussian: Shapes, noise_size: int) -> None:
        super().__init__(deterministic, gaussian, noise_size)
        self.make = make

    def fill(self, tensors: dict[str, Tensor], generator: torch.Generator) -> None:
        for name, parameter in initial_module(self.make, generator).named_parameters():
            tensors[f"{name}.mean" if name in self.gaussian else name].copy_(parameter.detach())


class PlainNetwork:
    """A Network (see there) made of a plain module.

    title: what messages call it; make: builds the module; input_shape: (C, H, W) or (F,); labels: L; variational: see
    `bflp.networks.build`. Raises NetworkError for a module that cannot be trained so.

    Noise columns: the outputs of layers with Gaussian weights and the masks of dropout, in the order of the calls, then
    the numbers for weights that are drawn themselves, of which the batch's first row counts.
    """

    def __init__(
        self,
        title: str,
        make: Make,
        input_shape: tuple[int, ...],
        labels: int,
        variational: str,
        posterior: Posterior,
        device: torch.device | str,
    ) -> None:
        self.title, self.make = title, make
        self.input_shape, self.labels = input_shape, labels
        self.posterior, self.device = posterior, torch.device(device)
        self._module = self._checked(self._new_module())
        parameters = dict(self._module.named_parameters())
        chosen = gaussian_names(self._module, variational, title)
        shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
        self._calls: Iterator[Tensor] | None = None  # the noise of the calls still to come
        self._variances: dict[str, Tensor] = {}
        self._call_sizes, local = self._prepare_layers(chosen)
        self._drawn = [name for name in parameters if name in chosen and name not in local]
        self._drawn_sizes = [math.prod(shapes[name]) for name in self._drawn]
        self.layout = PlainLayout(
            make,
            {name: shape for name, shape in shapes.items() if name not in chosen},
            {name: shape for name, shape in shapes.items() if name in chosen},
            sum(self._call_sizes[True]) + sum(self._drawn_sizes),
        )
        self._dtype = torch.float32
        self._module.to(self.device)
        owners = dict(self._module.named_modules())
        split = {name: name.rpartition(".") for name in parameters}
        self._places = {name: (owners[owner], key) for name, (owner, _, key) in split.items()}
        self._distributions = lru_cache(None)(self._new_distributions)
        self._last: tuple[Tensor, Tensor, list[Tensor], list[Tensor]] | None = None

    def gradient(
        self, vector: Tensor, images: Tensor, labels: Tensor, noise: Tensor | None, kl_weight: float, out: Tensor
    ) -> Tensor:
        if noise is None and self.layout.gaussian:
            raise ValueError("the network needs noise")
        training = noise is not None or not self.layout.noise_size
        leaves, places = self._leaves(vector, out)
        self._load(vector)
        calls = len(self._call_sizes[True])
        columns = () if noise is None else noise.split(self._call_sizes[True] + self._drawn_sizes, dim=1)
        eps = [each[0] for each in columns[calls:]]
        with torch.enable_grad():
            loss = F.cross_entropy(self._logits(leaves, images, iter(columns[:calls]), eps, training), labels)
            gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
        loss = loss.detach()
        torch._foreach_copy_(places, gradients)
        if self.layout.gaussian:
            distributions = self._distributions(vector.dtype)
            means, log_variances = self.layout.means, self.layout.log_variances
            loss.add_(distributions.divergence(vector[means]), alpha=kl_weight)
            distributions.add_gradient(kl_weight, vector[log_variances], out[means], out[log_variances].mul_(2.0))
        return loss

    @torch.no_grad()
    def predict(
        self, vector: Tensor, images: Tensor, samples: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """See Network. A sample's noise is drawn weight by weight, [size], then call by call, [columns, B]."""
        tensors, batch = self._tensors(vector), len(images)
        self._load(vector)
        samples = samples if self.layout.gaussian else 1
        probabilities = vector.new_zeros(len(images), self.labels)
        entropies = vector.new_zeros(len(images))
        for _ in range(samples):
            eps = [vector.new_empty(size).normal_(generator=generator) for size in self._drawn_sizes]
            # one layer's at a time: all of a convolutional network's are many times its images
            columns = (vector.new_empty(n, batch).normal_(generator=generator).t() for n in self._call_sizes[False])
            logs = torch.log_softmax(self._logits(tensors, images, columns, eps, False), dim=1)
            probability = logs.exp()
            probabilities += probability
            entropies -= probability.mul_(logs).sum(dim=1)
        return probabilities.div_(samples), entropies.div_(samples)

    def module(self, vector: Tensor) -> nn.Module:
        """See Network."""
        tensors = self.layout.views(vector)
        module = self._new_module()
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(tensors[f"{name}.mean" if name in self.layout.gaussian else name])
        return module.to(self.device).eval()

    def _leaves(self, vector: Tensor, out: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The layout's tensors as leaves of autograd's graph, and the places of their gradients in `out`.

        Both are kept for the next call, since all steps of a client have the same two vectors: views see what changes.
        """
        if self._last is None or self._last[0] is not vector or self._last[1] is not out:
            leaves = [tensor.requires_grad_() for tensor in self._tensors(vector)]
            self._last = (vector, out, leaves, list(self.layout.views(out).values()))
        return self._last[2:]

    def _tensors(self, vector: Tensor) -> list[Tensor]:
        """The layout's tensors, detached, with variances in the place of log variances."""
        tensors = list(self.layout.views(vector).values())
        if self.layout.gaussian:
            tensors[-len(self.layout.gaussian) :] = self._distributions(vector.dtype).by_weight
        return [tensor.detach() for tensor in tensors]

    def _load(self, vector: Tensor) -> None:
        """Computes the variances of a vector [D]."""
        if self.layout.gaussian:
            self._distributions(vector.dtype).load(vector[self.layout.log_variances])

    def _logits(
        self, tensors: list[Tensor], images: Tensor, calls: Iterator[Tensor], eps: list[Tensor], train: bool
    ) -> Tensor:
        """The module's output [B, L]. calls: noise [B, n] for each call of a layer; eps: for each drawn weight."""
        named, gaussian = dict(zip(self.layout.shapes, tensors, strict=True)), self.layout.gaussian
        dtype = tensors[0].dtype
        values = {name: named[f"{name}.mean" if name in gaussian else name] for name in self._places}
        self._variances = {name: named[f"{name}.log_variance"] for name in gaussian}
        for name, numbers in zip(self._drawn, eps, strict=True):
            deviation = self._variances[name].clamp_min(torch.finfo(dtype).tiny).sqrt()
            values[name] = torch.addcmul(values[name], deviation, numbers.view(gaussian[name]))
        # Not by torch.func.functional_call, which also puts back what was there: a twelfth of a small network's step.
        for name, (owner, key) in self._places.items():
            owner._parameters[key] = values[name]  # type: ignore[assignment]
        self._calls = calls
        if self._module.training != train:
            self._module.train(train)
        if self._dtype != dtype:
            for buffer in self._module.buffers():
                buffer.data = buffer.to(dtype) if buffer.is_floating_point() else buffer
            self._dtype = dtype
        logits: Tensor = self._module(images.to(dtype))
        return logits

    def _noise_for(self, output: Tensor) -> Tensor:
        """The next call's noise, in the shape of its output."""
        if self._calls is None:  # while the network is being built
            return torch.zeros_like(output)
        piece = next(self._calls, None)
        if piece is None or piece.numel() != output.numel():
            raise NetworkError(f"{self.title}: calls its layers in another way from batch to batch")
        return piece.reshape(output.shape)

    def _local(self, layer: nn.Linear | nn.Conv2d, name: str, x: Tensor) -> Tensor:
        """The output of a layer with a Gaussian weight; its own parameters are the means."""
        weight, bias = self._variances[_join(name, "weight")], self._variances.get(_join(name, "bias"))
        if isinstance(layer, nn.Conv2d):
            variance = layer._conv_forward(x.square(), weight, bias)
        else:
            variance = F.linear(x.square(), weight, bias)
        mean = type(layer).forward(layer, x)  # type: ignore[arg-type]
        return torch.addcmul(mean, (variance + VARIANCE_FLOOR).sqrt(), self._noise_for(mean))

    def _prepare_layers(self, chosen: set[str]) -> tuple[dict[bool, list[int]], set[str]]:
        """Have layers work with noise; the noise that the calls of a pass need per sample, in training or not.

        Also the names of the parameters whose layers draw outputs: of those that each pass calls once. A layer that is
        called more often, or never because others read its weight, has its weight drawn.
        """
        layers = dict(self._module.named_modules())
        dropouts = {name for name, layer in layers.items() if isinstance(layer, Dropout)}
        for name in dropouts:
            layers[name].noise = self._noise_for
        able = {
            n for n, layer in layers.items() if type(layer) in (nn.Linear, nn.Conv2d) and _join(n, "weight") in chosen
        }
        calls = {train: self._calls_of_a_pass(able | dropouts, train) for train in (True, False)}
        counts = [Counter(name for name, _ in each) for each in calls.values()]
        local = {name for name in able if all(count[name] == 1 for count in counts)}
        for name in local:
            layers[name].forward = partial(self._local, layers[name], name)  # type: ignore[method-assign]
        sizes = {
            train: [size for name, size in each if name in local or (train and name in dropouts)]
            for train, each in calls.items()
        }
        return sizes, {_join(name, kind) for name in local for kind in ("weight", "bias")}

    @torch.no_grad()
    def _calls_of_a_pass(self, names: set[str], train: bool) -> list[tuple[str, int]]:
        """The calls of layers in one pass: which, and how many numbers each gives per sample."""
        batch, calls = 2, list[tuple[str, int]]()
        module = self._module.train(train)

        def note(name: str, layer: nn.Module, given: object, output: Tensor) -> None:
            calls.append((name, output.numel() // batch))

        hooks = [
            layer.register_forward_hook(partial(note, name)) for name, layer in module.named_modules() if name in names
        ]
        shape = "x".join(map(str, self.input_shape))
        inputs = torch.linspace(0.0, 1.0, batch * math.prod(self.input_shape)).view(batch, *self.input_shape)
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        try:
            logits = module(inputs)
        except Exception as error:
            raise NetworkError(f"{self.title}: fails on inputs of shape {shape}: {one_line(error)}") from None
        for hook in hooks:
            hook.remove()
        for name, buffer in module.named_buffers():
            if not torch.equal(buffer, buffers[name]):
                raise NetworkError(f"{self.title}: {name} changes from batch to batch: {RUNNING}")
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if found != (batch, self.labels):
            raise NetworkError(
                f"{self.title}: must make {self.labels} logits of each input of shape {shape}, "
                f"[batch, {self.labels}], but of {batch} inputs it makes {found}"
            )
        return calls

    def _new_module(self) -> nn.Module:
        """A module in its initial state, the same each time."""
        try:
            return initial_module(self.make, torch.Generator().manual_seed(0))
        except NetworkError:
            raise
        except Exception as error:
            raise NetworkError(f"{self.title}: build failed: {one_line(error)}") from None

    def _checked(self, module: object) -> nn.Module:
        """Refuse what no input is needed to see."""
        if not isinstance(module, nn.Module):
            raise NetworkError(f"{self.title}: build must return a torch.nn.Module, got {type(module).__name__}")
        for name, layer in module.named_modules():
            rate = layer.p if isinstance(layer, _DropoutNd) else getattr(layer, "dropout", None)
            if isinstance(layer, _BatchNorm):
                reason = RUNNING
            elif isinstance(rate, float) and rate > 0.0:
                reason = "draws from torch's global generator: use bflp.networks.layers.Dropout"
            else:
                continue
            raise NetworkError(f"{self.title}: {name or 'the module'} ({type(layer).__name__}): {reason}")
        seen: dict[int, str] = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if id(parameter) in seen:
                raise NetworkError(
                    f"{self.title}: {seen[id(parameter)]} and {name} share a parameter: give each its own"
                )
            seen[id(parameter)] = name
            if isinstance(parameter, nn.UninitializedParameter) or parameter.dtype != torch.float32:
                raise NetworkError(f"{self.title}: parameter {name} is not a float32 tensor of known shape")
            if not parameter.requires_grad:
                raise NetworkError(f"{self.title}: parameter {name} takes no gradient: make it a buffer")
        if not seen:
            raise NetworkError(f"{self.title}: has no parameters to train")
        return module

    @torch.inference_mode(False)
    def _new_distributions(self, dtype: torch.dtype) -> WeightDistributions:
        like = torch.empty(0, dtype=dtype, device=self.device)
        return WeightDistributions(self.layout.gaussian.values(), self.posterior, like)


def gaussian_names(module: nn.Module, variational: str, title: str) -> set[str]:
    """The parameters that are Gaussian; `variational` as for `bflp.networks.build`, the last layers as defined."""
    if variational == "none":
        return set()
    parameters = {name for name, _ in module.named_parameters()}
    if variational == "all":
        return parameters
    last = re.fullmatch(r"last:([1-9][0-9]*)", variational)
    if variational != "dense" and last is None:
        raise NetworkError(f"variational is none, dense, all or last:N, as in last:2, got {variational!r}")
    kinds = (nn.Linear,) if last is None else (nn.Linear, _ConvNd)
    found = [_join(name, "weight") for name, layer in module.named_modules() if isinstance(layer, kinds)]
    found = [name for name in found if name in parameters]
    count = len(found) if last is None else int(last[1])
    if not found or count > len(found):
        what = "dense" if last is None else "dense or convolution"
        raise NetworkError(f"{title}: has {len(found)} {what} layers, too few for variational: {variational}")
    return set(found[-count:])


def _join(module: str, parameter: str) -> str:
    return f"{module}.{parameter}" if module else parameter


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
