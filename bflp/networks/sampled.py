"""A Gaussian posterior over all weights of a network, for methods that train its means as plain numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bflp.networks import Network
from bflp.networks.layout import Layout


class SampledLayout(Layout):
    """Every tensor of the inner network's layout has a mean, which starts as it does there, and a log variance."""

    def __init__(self, inner: Layout) -> None:
        super().__init__({}, inner.shapes, inner.noise_size)
        self.inner = inner

    def fill(self, tensors: dict[str, Tensor], generator: torch.Generator) -> None:
        initial = self.inner.initial_vector(0.0, generator)
        for name, values in self.inner.views(initial).items():
            tensors[f"{name}.mean"].copy_(values)


class SampledPosterior:
    """A Network (see there) whose prediction draws all weights, theta = m + sigma * eps, for each sample.

    inner: the network without Gaussian weights, for training; its vector [P] is in the order of the means. With
    `enforce: clamp` the log variances used are those within the posterior's bounds, as for every network.
    """

    def __init__(self, inner: Network) -> None:
        if inner.layout.gaussian:
            raise ValueError("the inner network has Gaussian weights of its own")
        self.inner = inner
        self.layout = SampledLayout(inner.layout)
        self.input_shape, self.labels = inner.input_shape, inner.labels
        self.posterior, self.device = inner.posterior, inner.device

    def gradient(
        self, vector: Tensor, images: Tensor, labels: Tensor, noise: Tensor | None, kl_weight: float, out: Tensor
    ) -> Tensor:
        raise NotImplementedError("a sampled posterior is trained through its inner network")

    @torch.no_grad()
    def predict(
        self, vector: Tensor, images: Tensor, samples: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """See Network. eps is drawn sample by sample, for each as one tensor [P]; a sample serves all images."""
        mean, log_variance = vector[self.layout.means], vector[self.layout.log_variances]
        if self.posterior.enforce == "clamp":
            log_variance = log_variance.clamp(*self.posterior.bounds)
        deviation, eps = log_variance.mul(0.5).exp_(), torch.empty_like(mean)
        probabilities = vector.new_zeros(len(images), self.labels)
        entropies = vector.new_zeros(len(images))
        for _ in range(samples):
            theta = torch.addcmul(mean, deviation, eps.normal_(generator=generator))
            probability, entropy = self.inner.predict(theta, images, 1, generator)
            probabilities += probability
            entropies += entropy
        return probabilities.div_(samples), entropies.div_(samples)

    def module(self, vector: Tensor) -> nn.Module:
        """See Network."""
        return self.inner.module(vector[self.layout.means])
