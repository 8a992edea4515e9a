"""The network in standard torch layers, gradients by autograd: slow, and easy to check by reading.

It is the oracle that tests hold bflp.networks against, and the baseline of benchmarks/step.py. Its numbers are its own:
nothing here comes from the code under test but the layout's names and the posterior's settings, which callers pass in.

D. P. Kingma, T. Salimans, M. Welling: Variational Dropout and the Local Reparameterization Trick, 2015,
arXiv 1506.02557. The networks: How to Combine Variational Bayesian Networks in Federated Learning,
arXiv 2206.10897.
"""

import math
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build(image_shape: tuple[int, ...], labels: int) -> nn.Module:
    """LeNet as a person would bring it, in a file of their own."""
    convolutions = nn.Sequential(
        *(nn.Conv2d(image_shape[0], 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
    )
    features = convolutions(torch.zeros(1, *image_shape)).shape[1]
    dense = nn.Linear(features, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, labels)
    return nn.Sequential(convolutions, *dense)


def kl_divergence(mean: Tensor, log_variance: Tensor, prior_mean: float, prior_sd: float) -> Tensor:
    """KL(N(mean, exp(log_variance)) || N(prior_mean, prior_sd^2)) in nats, summed over all elements."""
    prior_variance = prior_sd**2
    ratio = log_variance.exp() / prior_variance
    shift = (mean - prior_mean).square() / prior_variance
    return 0.5 * (ratio + shift - 1.0 - log_variance + math.log(prior_variance)).sum()


class VariationalLinear(nn.Module):
    """A dense layer whose weights are independent normals, by local reparameterisation.

    Given x [B, I] the outputs [B, O] are normal with mean x mu^T + b and variance x^2 (sigma^2)^T, and are
    drawn as such: one number per output instead of one per weight.
    """

    def __init__(self, inputs: int, outputs: int, posterior: Any) -> None:
        super().__init__()
        self.posterior = posterior
        self.mean = nn.Parameter(torch.zeros(outputs, inputs))
        self.log_variance = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def used_log_variance(self) -> Tensor:
        if self.posterior.enforce == "clamp":
            return self.log_variance.clamp(*self.posterior.bounds)
        return self.log_variance

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        mean = F.linear(x, self.mean, self.bias)
        variance = F.linear(x.square(), self.used_log_variance().exp())
        return mean + (variance + 1e-8).sqrt() * noise

    def kl_divergence(self) -> Tensor:
        mean, sd = self.posterior.prior_mean, self.posterior.prior_standard_deviation
        return kl_divergence(self.mean, self.used_log_variance(), mean, sd)


class LeNet(nn.Module):
    """conv - ReLU - pool - conv - ReLU - pool - dense - ReLU - dense - ReLU - dense, names as in LeNetLayout.

    layout: the image_shape, labels and `variational` of a LeNetLayout; posterior: prior, bounds and `enforce`.
    """

    def __init__(self, layout: Any, posterior: Any) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(layout.image_shape[0], 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.variational = layout.variational
        widths = (self.features(torch.zeros(1, *layout.image_shape)).shape[1], 120, 84, layout.labels)
        self.dense1, self.dense2, self.dense3 = (
            VariationalLinear(inputs, outputs, posterior) if self.variational else nn.Linear(inputs, outputs)
            for inputs, outputs in pairwise(widths)
        )

    def load_vector(self, layout: Any, vector: Tensor) -> None:
        """Takes over dtype, device and values of a flat vector [D]."""
        self.to(vector)
        with torch.no_grad():
            parameters = dict(self.named_parameters())
            for name, values in layout.views(vector).items():
                parameters[name].copy_(values)

    def gradient_vector(self, layout: Any) -> Tensor:
        """The parameters' .grad as a flat vector [D]."""
        parameters = dict(self.named_parameters())
        gradients = [parameters[name].grad for name in layout.tensors]
        return torch.cat([gradient.flatten() for gradient in gradients if gradient is not None])

    def features(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return x.flatten(1)

    def forward(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """images [B, C, H, W], noise [B, 120 + 84 + L] for the variational network -> logits [B, L]."""
        x = self.features(images)
        if not self.variational:
            return self.dense3(F.relu(self.dense2(F.relu(self.dense1(x)))))  # type: ignore[no-any-return]
        assert noise is not None
        noise1, noise2, noise3 = noise.split([120, 84, noise.shape[1] - 204], dim=1)
        x = F.relu(self.dense1(x, noise1))
        x = F.relu(self.dense2(x, noise2))
        return self.dense3(x, noise3)  # type: ignore[no-any-return]

    def loss(self, images: Tensor, labels: Tensor, noise: Tensor | None, kl_weight: float) -> Tensor:
        """Mean cross entropy + kl_weight * the KL divergence of all variational weights, in nats."""
        loss = F.cross_entropy(self(images, noise), labels)
        for layer in self.children():
            if isinstance(layer, VariationalLinear):
                loss = loss + kl_weight * layer.kl_divergence()
        return loss


def plain_gradient(
    layout: Any,
    vector: Tensor,
    images: Tensor,
    labels: Tensor,
    noise: Tensor | None,
    kl_weight: float,
    posterior: Any,
) -> tuple[Tensor, Tensor]:
    """The loss and its gradient [D] by autograd; arguments as for Network.gradient, in the vector's dtype."""
    network = LeNet(layout, posterior)
    network.load_vector(layout, vector)
    loss = network.loss(images.to(vector), labels, None if noise is None else noise.to(vector), kl_weight)
    loss.backward()
    return loss.detach(), network.gradient_vector(layout)
