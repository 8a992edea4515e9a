"""LeNet for a stack of K clients with parameters of their own: as many operations as for one, on larger tensors.

Each slice of the stack is computed as LeNet computes it (bflp.networks.lenet), with batched products; what differs from
client to client is a tensor here: the weight of the divergence, and how much each sample of a batch counts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bflp.networks.lenet import Convolutions, Head, LeNet, Tensors
from bflp.networks.posterior import WeightDistributions


class StackedLeNet:
    """Loss and gradient of K clients at once. single: the network of one, whose layout and posterior it shares.

    batch: B, the same in each call; like: has the dtype and device that it computes in.
    """

    def __init__(self, single: LeNet, clients: int, batch: int, like: Tensor) -> None:
        self.layout, stack = single.layout, (clients,)
        self.distributions, variances = None, list[Tensor]()
        if self.layout.variational:
            self.distributions = StackedDistributions(self.layout.dense_shapes, single.posterior, like, stack)
            variances = self.distributions.by_weight
        self.convolutions = Convolutions(self.layout, batch, like, stack)
        self.head = Head(self.layout, batch, like, variances, stack)

    def gradient(
        self,
        vectors: Tensor,
        images: Tensor,
        labels: Tensor,
        noise: Tensor | None,
        kl_weights: Tensor,
        shares: Tensor,
        out: Tensor,
    ) -> Tensor:
        """The losses [K]; writes their gradients by the parameters into `out` [K, D].

        vectors [K, D]; images [K, B, C, H, W] in [0, 1]; labels int64 [K, B]; noise [K, B, noise_size] or None;
        kl_weights [K, 1]; shares [K, B]: of each sample in its client's mean cross entropy, 0 for samples that do not
        count.
        """
        parameters, gradients = self._views(vectors), self._views(out)
        means, log_variances = self.layout.means, self.layout.log_variances
        if self.distributions is not None:
            assert noise is not None
            self.head.noise.copy_(noise.mT)
            self.distributions.load(vectors[:, log_variances])
        logits = self.head.forward(self.convolutions.forward(images, parameters), parameters)
        log_probabilities = torch.log_softmax(logits, dim=1)
        losses = -(log_probabilities.gather(1, labels.unsqueeze(1)).squeeze(1) * shares).sum(dim=1)
        hits = (self.head.classes == labels.unsqueeze(1)).to(logits.dtype)
        gradient = log_probabilities.exp_().sub_(hits).mul_(shares.unsqueeze(1))
        self.convolutions.backward(self.head.backward(gradient, parameters, gradients), gradients)
        if self.distributions is not None:
            losses.add_(self.distributions.divergence(vectors[:, means]) * kl_weights.squeeze(1))
            by_means, by_log_variances = out[:, means], out[:, log_variances]
            self.distributions.add_gradient(kl_weights, vectors[:, log_variances], by_means, by_log_variances)
        return losses

    def _views(self, vectors: Tensor) -> Tensors:
        return {name: vectors[:, where].unflatten(1, shape) for name, (where, shape) in self.layout.tensors.items()}


class StackedDistributions(WeightDistributions):
    """The same for a stack: means, log_variances [K, V]."""

    def divergence(self, means: Tensor) -> Tensor:
        """KL(q || prior) in nats of each client, [K]."""
        torch.sub(means, self.posterior.prior_mean, out=self.shifts)
        scaled = (self.variances.sum(dim=1) + self.shifts.square().sum(dim=1)) * self.precision
        constant = self.count * (1.0 + math.log(self.precision))
        return (scaled - self.used_log_variances.sum(dim=1) - constant) * 0.5
