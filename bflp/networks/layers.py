"""Layers for networks of one's own, and what the built-in ones share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist

from torch import Tensor, nn

from bflp.networks import NetworkError


class Dropout(nn.Module):
    """In training, zeroes each number with probability p and divides the others by 1 - p; else changes nothing.

    The mask comes from standard normal noise that the network gets from outside, never from torch's global generator,
    so that a run can be repeated. Raises NetworkError unless 0 < p < 1.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0.0 < p < 1.0:
            raise NetworkError(f"dropout needs a probability between 0 and 1, got {p}")
        self.p = p
        self.threshold = NormalDist().inv_cdf(1.0 - p)
        self.noise: Callable[[Tensor], Tensor] | None = None  # from a tensor to noise of its shape

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if self.noise is None:
            raise RuntimeError("this dropout layer has no noise outside federated training: call eval() first")
        return x * (self.noise(x) < self.threshold) / (1.0 - self.p)


def image_channels(network: str, image_shape: Sequence[int], smallest: int) -> int:
    """C of (C, H, W). Raises NetworkError for features, and for images with a side below `smallest` pixels."""
    if len(image_shape) != 3 or min(image_shape[1:]) < smallest:
        raise NetworkError(
            f"{network} needs images of at least {smallest}x{smallest} pixels, got {'x'.join(map(str, image_shape))}"
        )
    return image_shape[0]
