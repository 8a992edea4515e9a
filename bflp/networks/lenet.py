"""LeNet's loss and gradient, written out by hand and computed in buffers that are reused from step to step.

Local training is many small steps (64 images, a few MFLOP per layer), where autograd, memory allocation and
generic pooling kernels cost more than the arithmetic. What is done about it:

- Convolution and 2x2 max pooling are one matrix product: the four outputs that compete in a pooling window
  are computed side by side from their common 6x6 patch (see PooledConvolution). Pooling is then the maximum
  of four contiguous blocks, and the column matrix 2.8 times smaller than with one 5x5 patch per output.
- Inside the network the batch is the *last* dimension, [maps, y, x, B] and [units, B], so that every copy and
  addition of a shifted image moves runs of at least B contiguous floats.
- ReLU comes after pooling (the two commute) and so has a quarter of the numbers.
- Large results go to buffers that exist: a fresh 160 kB tensor costs more in page faults than its exp().

Shapes are written as for one client. Where a `stack` (K,) is given, every tensor has it as a leading dimension, and K
clients are computed in as many operations as one, with parameters of their own (bflp.networks.stacked_lenet).

The same operations run on CPU and CUDA; none synchronises with the device, none is non-deterministic.

The networks and their loss: How to Combine Variational Bayesian Networks in Federated Learning, arXiv
2206.10897. Local reparameterisation: D. P. Kingma, T. Salimans, M. Welling: Variational Dropout and the Local
Reparameterization Trick, 2015, arXiv 1506.02557. tests.oracles.plain is the same in standard layers.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor, nn

from bflp.networks import NetworkError
from bflp.networks.layout import Layout, Shape
from bflp.networks.posterior import VARIANCE_FLOOR, Posterior, WeightDistributions

MAPS = (6, 16)  # feature maps of the two convolutions
KERNEL = 5
HIDDEN = (120, 84)  # units of the two hidden dense layers
SMALLEST_SIDE = 16  # pixels; leaves one pixel after the second pooling
PATCH = KERNEL + 1  # side of the input patch below a 2x2 window of convolution outputs
LARGEST_CHUNK = 100  # images whose features are computed at once: the buffers stay within the cache
KEPT_BATCH_SIZES = 4  # batch sizes whose buffers are kept

aten = torch.ops.aten
Tensors = dict[str, Tensor]
MEANS, LOG_VARIANCES = "means", "log_variances"  # of all layers, among the named tensors


class LeNetLayout(Layout):
    """The layout of LeNet's parameters.

    image_shape: (C, H, W), H and W of at least 16 pixels. labels: L >= 2. variational: whether the dense
    weights are Gaussian (a mean and a log variance each) or numbers. Raises NetworkError for other shapes.
    """

    def __init__(self, image_shape: Sequence[int], labels: int, variational: bool) -> None:
        if len(image_shape) != 3 or image_shape[0] < 1 or min(image_shape[1:]) < SMALLEST_SIDE:
            raise NetworkError(
                f"LeNet needs images of at least {SMALLEST_SIDE}x{SMALLEST_SIDE} pixels and one channel, "
                f"got {'x'.join(map(str, image_shape))} (channels x height x width)"
            )
        if labels < 2:
            raise NetworkError(f"a classifier needs at least 2 labels, got {labels}")
        channels, height, width = image_shape
        self.image_shape = (channels, height, width)
        self.labels = labels
        self.variational = variational
        self.feature_size = MAPS[1] * features_along(height) * features_along(width)
        widths = (self.feature_size, *HIDDEN, labels)
        self.dense_shapes = tuple((outputs, inputs) for inputs, outputs in pairwise(widths))
        numbers: dict[str, Shape] = {}
        for layer, (inputs, maps) in enumerate(pairwise((channels, *MAPS)), start=1):
            numbers |= {f"conv{layer}.weight": (maps, inputs, KERNEL, KERNEL), f"conv{layer}.bias": (maps,)}
        dense = {f"dense{layer}": shape for layer, shape in enumerate(self.dense_shapes, start=1)}
        numbers |= {f"{layer}.bias": shape[:1] for layer, shape in dense.items()}
        if variational:
            super().__init__(numbers, dense, sum(outputs for outputs, _ in self.dense_shapes))
        else:
            super().__init__(numbers | {f"{layer}.weight": shape for layer, shape in dense.items()}, {}, 0)

    def fill(self, tensors: dict[str, Tensor], generator: torch.Generator) -> None:
        """Means N(0, 1 / fan_in), biases of variational layers 0, all else uniform within 1 / sqrt(fan_in).

        The last is torch's default for convolutions and dense layers, for weights and biases alike.
        """
        for name, tensor in tensors.items():
            layer, kind = name.split(".")
            weight = tensors.get(f"{layer}.weight", tensors.get(f"{layer}.mean"))
            assert weight is not None
            scale = 1.0 / math.sqrt(weight[0].numel())
            if kind == "mean":
                tensor.normal_(0.0, scale, generator=generator)
            elif kind != "log_variance" and layer not in self.gaussian:
                tensor.uniform_(-scale, scale, generator=generator)


def features_along(pixels: int) -> int:
    """What is left of a side of the image after two rounds of unpadded 5x5 convolution and pooling by 2."""
    for _ in MAPS:
        pixels = (pixels - KERNEL + 1) // 2
    return pixels


def build(image_shape: Sequence[int], labels: int) -> nn.Module:
    """LeNet as a plain module, for posteriors other than that of the dense weights."""
    layout = LeNetLayout(image_shape, labels, False)
    first, second, third = (nn.Linear(inputs, outputs) for outputs, inputs in layout.dense_shapes)
    stages: list[tuple[str, nn.Module]] = [
        *(
            ("conv1", nn.Conv2d(layout.image_shape[0], MAPS[0], KERNEL)),
            ("pool1", nn.MaxPool2d(2)),
            ("relu1", nn.ReLU()),
        ),
        *(("conv2", nn.Conv2d(*MAPS, KERNEL)), ("pool2", nn.MaxPool2d(2)), ("relu2", nn.ReLU())),
        *(("flatten", nn.Flatten()), ("dense1", first), ("relu3", nn.ReLU()), ("dense2", second)),
        *(("relu4", nn.ReLU()), ("dense3", third)),
    ]
    return nn.Sequential(OrderedDict(stages))


class PooledConvolution:
    """relu(maxpool(convolution(x) + bias)) with a 5x5 kernel and 2x2 pooling, forward and backward.

    The outputs (dy, dx) in {0, 1}^2 of one pooling window see the same 6x6 patch of the input, each through
    the 5x5 kernel shifted by (dy, dx). With the four shifted kernels as rows, [4 maps, 36 C], a window is one
    column of a matrix product: 1.44 times the multiplications of the convolution, but in a better shape and
    on far fewer data.

    windows: a view of the input buffer with each window's patch, [C, 6, 6, ..., B], or 3, 2 for a 6; "..." is
    the order in which the windows (pooled outputs) are wanted. N is the number of windows times B.
    """

    def __init__(self, windows: Tensor, maps: int, stack: Shape) -> None:
        channels = windows.shape[len(stack)]
        patch = channels * PATCH * PATCH
        count = windows.numel() // (patch * math.prod(stack))
        self.windows = windows
        self.columns = windows.new_empty(*stack, patch, count)
        self.columns_as_windows = self.columns.view(windows.shape)
        self.kernels = windows.new_zeros(*stack, 4 * maps, patch)
        self.kernel_gradients = windows.new_empty(*stack, 4 * maps, patch)
        self.shifted = _shifted_kernels(self.kernels, maps, channels)
        shifted_gradients = _shifted_kernels(self.kernel_gradients, maps, channels)
        self.shifted_gradients = [shifted_gradients[dy, dx] for dy in (0, 1) for dx in (0, 1)]
        self.output = windows.new_empty(*stack, maps, count)
        self.responses = Pair(windows, *stack, 2, 2, maps, count)  # dy, dx, map, window: left and right of each row
        self.rows = Pair(windows, *stack, 2, maps, count)  # the maxima of the upper and of the lower row
        self.responses_as_matrix = self.responses.values.view(*stack, 4 * maps, count)

    def forward(self, weight: Tensor, bias: Tensor) -> Tensor:
        """weight [maps, C, 5, 5], bias [maps] -> output [maps, N]."""
        self.shifted.copy_(weight)
        self.columns_as_windows.copy_(self.windows)
        _product(self.kernels, self.columns, self.responses_as_matrix)
        self.responses.maximum(out=self.rows.values)
        self.rows.maximum(out=self.output)
        return self.output.add_(bias.unsqueeze(-1)).relu_()

    def backward(self, gradient: Tensor, weight_out: Tensor, bias_out: Tensor) -> None:
        """gradient: by the output, [maps, N], overwritten. Writes those by weight and bias."""
        _relu_backward(gradient, self.output)
        torch.sum(gradient, dim=-1, out=bias_out)
        self.rows.backward(gradient)
        self.responses.backward(self.rows.values)
        _product(self.responses_as_matrix, self.columns.mT, self.kernel_gradients)
        first, second, third, fourth = self.shifted_gradients
        torch.add(first, second, out=weight_out).add_(third).add_(fourth)

    def backward_to_columns(self) -> None:
        """After backward(): replaces the columns by their gradients, each patch's share of the input's."""
        _product(self.kernels.mT, self.responses_as_matrix, self.columns)


class Pair:
    """Pairs of numbers, values[..., 0, :, :] and values[..., 1, :, :], of which the larger one is taken."""

    def __init__(self, like: Tensor, *shape: int) -> None:
        self.values = like.new_empty(shape)
        self.first, self.second = self.values.unbind(-3)

    def maximum(self, out: Tensor) -> None:
        torch.maximum(self.first, self.second, out=out)

    def backward(self, gradient: Tensor) -> None:
        """Replaces the values by the gradients: the maximum's goes to the larger one, the other one gets 0.

        Of equal ones the first gets it, as in torch's pooling.
        """
        margin = torch.sub(self.second, self.first, out=self.second)
        aten.threshold_backward.grad_input(gradient, margin, 0.0, grad_input=self.second)
        torch.sub(gradient, self.second, out=self.first)


def _shifted_kernels(matrix: Tensor, maps: int, channels: int) -> Tensor:
    """The view [dy, dx, maps, C, 5, 5] of the shifted kernels in a matrix [4 maps, 36 C], 0 around them.

    The stack's dimension comes after dy, dx.
    """
    block = maps * channels * PATCH * PATCH
    size = (2, 2, *matrix.shape[:-2], maps, channels, KERNEL, KERNEL)
    inner = (channels * PATCH * PATCH, PATCH * PATCH, PATCH, 1)
    return matrix.as_strided(size, (2 * block + PATCH, block + 1, *matrix.stride()[:-2], *inner))


class Convolutions:
    """Both convolutional stages for a fixed batch size B.

    Pooling drops odd last rows and columns, so only the part of the image that reaches a feature is read: for
    R x S features per map the first stage yields 2R + 4 rows, from 4R + 12 rows of the image.

    The first stage's output is kept by parity of the coordinates, [maps, y % 2, x % 2, y // 2, x // 2, B], as
    the second stage moves in steps of 2: what it reads for one place of the patch lies together.
    """

    def __init__(self, layout: LeNetLayout, batch: int, like: Tensor, stack: Shape = ()) -> None:
        channels, height, width = layout.image_shape
        rows, columns = features_along(height), features_along(width)
        self.images = like.new_empty(*stack, channels, height, width, batch)
        self.pixels = self.images.view(*stack, -1, batch)
        half_rows, half_columns = rows + 2, columns + 2
        *outer, y, x, _ = self.images.stride()
        windows1 = self.images.as_strided(
            (*stack, channels, PATCH, PATCH, 2, 2, half_rows, half_columns, batch),
            (*outer, y, x, 2 * y, 2 * x, 4 * y, 4 * x, 1),
        )
        self.stage1 = PooledConvolution(windows1, MAPS[0], stack)
        self.by_parity = (*stack, MAPS[0], 2, 2, half_rows, half_columns, batch)
        hidden = self.stage1.output.view(self.by_parity)
        parts = hidden.unfold(-3, rows, 1).unfold(-3, columns, 1)  # map, y % 2, x % 2, 3, 3, B, rows, columns
        inner = (-8, -5, -7, -4, -6, -2, -1, -3)
        self.stage2 = PooledConvolution(parts.permute(*range(len(stack)), *inner), MAPS[1], stack)
        self.features = self.stage2.output.view(*stack, layout.feature_size, batch)
        self.hidden_gradient = torch.empty_like(self.stage1.output)
        self.shares = self._shares(rows, columns)

    def _shares(self, rows: int, columns: int) -> list[tuple[Tensor, Tensor]]:
        """For each of the 3x3 places of 2x2 pixels in a patch: where it is in hidden_gradient, its share."""
        hidden = self.hidden_gradient.view(self.by_parity)
        patches = self.stage2.columns_as_windows
        return [
            (hidden[..., a : a + rows, b : b + columns, :], patches[..., a, :, b, :, :, :, :])
            for a in range(PATCH // 2)
            for b in range(PATCH // 2)
        ]

    def forward(self, images: Tensor, parameters: Tensors) -> Tensor:
        """images [B, C, H, W] -> features [F, B]."""
        self.pixels.copy_(images.flatten(-3).mT)
        self.stage1.forward(parameters["conv1.weight"], parameters["conv1.bias"])
        self.stage2.forward(parameters["conv2.weight"], parameters["conv2.bias"])
        return self.features

    def backward(self, gradient: Tensor, gradients: Tensors) -> None:
        """gradient: by the features, [F, B], overwritten. Writes those by the parameters."""
        gradient = gradient.view(self.stage2.output.shape)
        self.stage2.backward(gradient, gradients["conv2.weight"], gradients["conv2.bias"])
        self.stage2.backward_to_columns()
        self.hidden_gradient.zero_()
        for target, share in self.shares:
            target.add_(share)
        self.stage1.backward(self.hidden_gradient, gradients["conv1.weight"], gradients["conv1.bias"])


class Dense:
    """y = W x + b, batch last: x [I, B] -> y [O, B]. `name` finds its tensors."""

    weight = "weight"

    def __init__(self, name: str, shape: tuple[int, int], batch: int, like: Tensor, stack: Shape = ()) -> None:
        outputs, inputs = shape
        self.name = name
        self.output = like.new_empty(*stack, outputs, batch)
        self.input_gradient = like.new_empty(*stack, inputs, batch)

    def forward(self, x: Tensor, parameters: Tensors) -> Tensor:
        """Keeps x for the backward pass; its caller may apply ReLU to the output in place."""
        self.input = x
        weight, bias = parameters[f"{self.name}.{self.weight}"], parameters[f"{self.name}.bias"]
        return _affine(bias.unsqueeze(-1), weight, x, self.output)

    def backward(self, gradient: Tensor, parameters: Tensors, gradients: Tensors) -> Tensor:
        """gradient: by y. Writes those by weight and bias, returns that by x."""
        torch.sum(gradient, dim=-1, out=gradients[f"{self.name}.bias"])
        _product(gradient, self.input.mT, gradients[f"{self.name}.{self.weight}"])
        return _product(parameters[f"{self.name}.{self.weight}"].mT, gradient, self.input_gradient)


class VariationalDense(Dense):
    """A dense layer with independent normal weights N(mu, sigma^2), by local reparameterisation.

    y = mu x + b + s * noise with s^2 = sigma^2 x^2 + 1e-8 (x^2 by element) and noise ~ N(0, 1) of y's shape.
    """

    weight = "mean"

    def __init__(self, name: str, variance: Tensor, noise: Tensor) -> None:
        """variance [O, I], noise [O, B]: the buffers where these are found."""
        *stack, outputs, inputs = variance.shape
        super().__init__(name, (outputs, inputs), noise.shape[-1], variance, tuple(stack))
        self.variance = variance
        self.noise = noise
        self.floor = variance.new_tensor(VARIANCE_FLOOR)
        self.squares = torch.empty_like(self.input_gradient)
        self.deviation = torch.empty_like(self.output)
        self.doubled_gradient = torch.empty_like(self.output)
        self.square_gradient = torch.empty_like(self.input_gradient)

    def moments(self, x: Tensor, parameters: Tensors) -> tuple[Tensor, Tensor]:
        """x [I, B] -> mean and standard deviation of y, [O, B] each."""
        torch.mul(x, x, out=self.squares)
        _affine(self.floor, self.variance, self.squares, self.deviation).sqrt_()
        return super().forward(x, parameters), self.deviation

    def forward(self, x: Tensor, parameters: Tensors) -> Tensor:
        mean, deviation = self.moments(x, parameters)
        return mean.addcmul_(deviation, self.noise)

    def backward(self, gradient: Tensor, parameters: Tensors, gradients: Tensors) -> Tensor:
        """gradient: by y. Writes those by mean and bias, returns that by x.

        In the place of that by the log variance it leaves twice that by the *variance*, for
        WeightDistributions.add_gradient to finish. With u = gradient * noise / s, twice the gradient by s^2,
        that is u (x^2)^T, and the one by x is mu^T gradient + x * (sigma^2)^T u.
        """
        doubled = torch.mul(gradient, self.noise, out=self.doubled_gradient).div_(self.deviation)
        _product(doubled, self.squares.mT, gradients[f"{self.name}.log_variance"])
        _product(self.variance.mT, doubled, self.square_gradient)
        by_input = super().backward(gradient, parameters, gradients)
        return by_input.addcmul_(self.square_gradient, self.input)


class Head:
    """The three dense layers and the cross entropy, for a fixed batch size B."""

    def __init__(
        self, layout: LeNetLayout, batch: int, like: Tensor, variances: Sequence[Tensor], stack: Shape = ()
    ) -> None:
        """variances: of the dense weights, [O, I] each; empty for the deterministic network."""
        names = ("dense1", "dense2", "dense3")
        self.noise = like.new_empty(*stack, layout.noise_size, batch)
        self.layers: Sequence[Dense]
        if layout.variational:
            noise = self.noise.split([outputs for outputs, _ in layout.dense_shapes], dim=-2)
            self.layers = [VariationalDense(*each) for each in zip(names, variances, noise, strict=True)]
        else:
            self.layers = [Dense(*each, batch, like, stack) for each in zip(names, layout.dense_shapes, strict=True)]
        self.classes = torch.arange(layout.labels, device=like.device).unsqueeze(1)

    def forward(self, features: Tensor, parameters: Tensors) -> Tensor:
        """features [F, B] -> logits [L, B], with the noise [noise_size, B] in self.noise."""
        first, second, third = self.layers
        x = first.forward(features, parameters).relu_()
        x = second.forward(x, parameters).relu_()
        return third.forward(x, parameters)

    def backward(self, gradient: Tensor, parameters: Tensors, gradients: Tensors) -> Tensor:
        """gradient: by the logits, [L, B]. Writes those by the parameters, returns that by the features."""
        first, second, third = self.layers
        gradient = _relu_backward(third.backward(gradient, parameters, gradients), third.input)
        gradient = _relu_backward(second.backward(gradient, parameters, gradients), second.input)
        return first.backward(gradient, parameters, gradients)

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """logits [L, B], labels [B] -> (mean cross entropy in nats, its gradient by the logits)."""
        log_probabilities = torch.log_softmax(logits, dim=0)
        loss = log_probabilities.gather(0, labels.unsqueeze(0)).mean().neg_()
        hits = (self.classes == labels).to(logits.dtype)
        return loss, log_probabilities.exp_().sub_(hits).div_(len(labels))

    def samples(
        self, features: Tensor, count: int, parameters: Tensors, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """The logits [L, B] of `count` passes with noise of their own; each is overwritten by the next."""
        first, second, third = self.layers
        assert isinstance(first, VariationalDense)
        mean, deviation = first.moments(features, parameters)
        x = torch.empty_like(mean)
        for _ in range(count):
            self.noise.normal_(generator=generator)
            torch.addcmul(mean, deviation, first.noise, out=x).relu_()
            yield third.forward(second.forward(x, parameters).relu_(), parameters)


class LeNet:
    """Loss, gradient and predictions of LeNet with parameters given as a flat vector (see Layout).

    Vectors, images, labels, noise and generators must be on its device; it computes in the vector's dtype.
    Buffers are kept from call to call, so one object must not be used by two threads at a time.
    """

    def __init__(self, layout: LeNetLayout, posterior: Posterior, device: torch.device | str) -> None:
        self.layout = layout
        self.input_shape = layout.image_shape
        self.labels = layout.labels
        self.posterior = posterior
        self.device = torch.device(device)
        self._distributions = lru_cache(None)(self._new_distributions)
        self._convolutions = lru_cache(KEPT_BATCH_SIZES)(self._new_convolutions)
        self._head = lru_cache(KEPT_BATCH_SIZES)(self._new_head)
        self._parameter_views = _Views(layout)
        self._gradient_views = _Views(layout)

    @torch.inference_mode()
    def gradient(
        self, vector: Tensor, images: Tensor, labels: Tensor, noise: Tensor | None, kl_weight: float, out: Tensor
    ) -> Tensor:
        """The loss of a batch, a scalar inference tensor; writes its gradient by the parameters into `out`.

        vector [D]; images [B, C, H, W] in [0, 1]; labels int64 [B]; noise [B, noise_size] standard normal numbers,
        the first layer's first, or None for the deterministic network; out [D].

        loss = mean cross entropy of the batch + kl_weight * KL(q || prior) summed over all weights, in nats.
        """
        parameters, gradients = self._parameter_views(vector), self._gradient_views(out)
        convolutions = self._convolutions(len(images), vector.dtype)
        head = self._head(len(images), vector.dtype)
        if self.layout.variational:
            if noise is None:
                raise ValueError("the variational network needs noise")
            head.noise.copy_(noise.t())
            distributions = self._distributions(vector.dtype)
            distributions.load(parameters[LOG_VARIANCES])
        logits = head.forward(convolutions.forward(images, parameters), parameters)
        loss, gradient = head.cross_entropy(logits, labels)
        convolutions.backward(head.backward(gradient, parameters, gradients), gradients)
        if self.layout.variational:
            loss.add_(distributions.divergence(parameters[MEANS]), alpha=kl_weight)
            kl_gradients = gradients[MEANS], gradients[LOG_VARIANCES]
            distributions.add_gradient(kl_weight, parameters[LOG_VARIANCES], *kl_gradients)
        return loss

    def module(self, vector: Tensor) -> nn.Module:
        """A plain module, in evaluation mode, whose weights are the means of a vector [D]."""
        tensors = self.layout.views(vector)
        module = build(self.input_shape, self.labels)
        module.load_state_dict({name.replace("mean", "weight"): tensors[name] for name in tensors if "log" not in name})
        return module.to(self.device).eval()

    @torch.no_grad()
    def features(self, vector: Tensor, images: Tensor) -> Tensor:
        """What the convolutional part makes of images [B, C, H, W]: [B, feature_size]."""
        return self._features(self._parameter_views(vector), images, vector).t().contiguous()

    @torch.no_grad()
    def predict(
        self, vector: Tensor, images: Tensor, samples: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """(probabilities [B, L], mean entropy [B]) of images [B, C, H, W], averaged over Monte Carlo samples.

        The entropy in nats is that of each sample's own softmax. The noise is drawn sample by sample, for
        each as one [noise_size, B] tensor, the first layer's units first, so it depends on how images are cut into
        calls.
        The deterministic network has one sample and draws nothing.
        """
        parameters = self._parameter_views(vector)
        head = self._head(len(images), vector.dtype)
        features = self._features(parameters, images, vector)
        if self.layout.variational:
            self._distributions(vector.dtype).load(parameters[LOG_VARIANCES])
            draws = head.samples(features, samples, parameters, generator)
        else:
            samples, draws = 1, iter([head.forward(features, parameters)])
        probabilities = vector.new_zeros(self.layout.labels, len(images))
        entropies = vector.new_zeros(len(images))
        for logits in draws:
            log_probabilities = torch.log_softmax(logits, dim=0)
            probability = log_probabilities.exp()
            probabilities += probability
            entropies -= probability.mul_(log_probabilities).sum(dim=0)
        return probabilities.div_(samples).t().contiguous(), entropies.div_(samples)

    def _features(self, parameters: Tensors, images: Tensor, like: Tensor) -> Tensor:
        """[F, B], computed for few images at a time."""
        features = like.new_empty(self.layout.feature_size, len(images))
        for start in range(0, len(images), LARGEST_CHUNK):
            chunk = images[start : start + LARGEST_CHUNK]
            convolutions = self._convolutions(len(chunk), like.dtype)
            features[:, start : start + len(chunk)] = convolutions.forward(chunk, parameters)
        return features

    # Buffers are ordinary tensors whichever mode their first user is in, so that every mode can write them.

    @torch.inference_mode(False)
    def _new_distributions(self, dtype: torch.dtype) -> WeightDistributions:
        return WeightDistributions(self.layout.dense_shapes, self.posterior, self._empty(dtype))

    @torch.inference_mode(False)
    def _new_convolutions(self, batch: int, dtype: torch.dtype) -> Convolutions:
        return Convolutions(self.layout, batch, self._empty(dtype))

    @torch.inference_mode(False)
    def _new_head(self, batch: int, dtype: torch.dtype) -> Head:
        variances = self._distributions(dtype).by_weight if self.layout.variational else ()
        return Head(self.layout, batch, self._empty(dtype), variances)

    def _empty(self, dtype: torch.dtype) -> Tensor:
        return torch.empty(0, dtype=dtype, device=self.device)


class _Views:
    """The named views of the vector it was last asked for; training asks for the same one in every step."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.vector: Tensor | None = None
        self.address = 0
        self.views: Tensors = {}

    def __call__(self, vector: Tensor) -> Tensors:
        if vector is not self.vector or vector.data_ptr() != self.address:
            self.views = self.layout.views(vector)
            self.views[MEANS] = vector[self.layout.means]
            self.views[LOG_VARIANCES] = vector[self.layout.log_variances]
            self.vector, self.address = vector, vector.data_ptr()
        return self.views


def _product(first: Tensor, second: Tensor, out: Tensor) -> Tensor:
    """first @ second."""
    return (torch.mm if out.dim() == 2 else torch.bmm)(first, second, out=out)


def _affine(constant: Tensor, first: Tensor, second: Tensor, out: Tensor) -> Tensor:
    """constant + first @ second."""
    return (torch.addmm if out.dim() == 2 else torch.baddbmm)(constant, first, second, out=out)


def _relu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    """In place: the gradient by a ReLU's output -> that by its input."""
    aten.threshold_backward.grad_input(gradient, output, 0.0, grad_input=gradient)
    return gradient
