"""Trying a network out before hours of training. Changes no number, so no network imports it."""

from __future__ import annotations

import torch
from torch import Tensor

from bflp.networks import Network, NetworkError

BATCH = 3


def try_out(network: Network, title: str = "the network") -> None:
    """A step and a prediction on made-up data. Raises NetworkError, in one line, for what cannot work."""
    network = getattr(network, "inner", network)
    generator = torch.Generator().manual_seed(0)
    vector = network.layout.initial_vector(-9.0, generator)
    again = network.layout.initial_vector(-9.0, torch.Generator().manual_seed(0))
    if not torch.allclose(vector, again, rtol=0.0, atol=0.0, equal_nan=True):
        raise NetworkError(f"{title}: its initial weights do not follow from torch's generator: draw them with torch")
    vector = vector.to(network.device)
    images = torch.rand((BATCH, *network.input_shape), generator=generator).to(network.device)
    labels = torch.randint(network.labels, (BATCH,), generator=generator).to(network.device)
    noise = torch.randn((BATCH, network.layout.noise_size), generator=generator).to(network.device)
    # the three samples in one batch, and each in its own: the noise of drawn weights is the first row's
    noise[1:] = noise[0]
    state = torch.get_rng_state()
    loss, gradient = _step(network, title, vector, images, labels, noise)
    if not bool(torch.isfinite(loss)) or not bool(torch.isfinite(gradient).all()):
        raise NetworkError(f"{title}: its loss or gradient is not finite at its initial weights")
    _, same_gradient = _step(network, title, vector, images, labels, noise)
    if not torch.equal(state, torch.get_rng_state()) or not torch.equal(gradient, same_gradient):
        raise NetworkError(
            f"{title}: draws random numbers of its own: remove that, or use bflp.networks.layers.Dropout"
        )
    if not _adds_up(network, title, vector, images, labels, noise):
        raise NetworkError(
            f"{title}: what it makes of a sample depends on the others in the batch: use GroupNorm or LayerNorm"
        )


def _adds_up(network: Network, title: str, vector: Tensor, images: Tensor, labels: Tensor, noise: Tensor) -> bool:
    """Whether the gradient of a batch is the mean of its samples' own."""
    _, gradient = _step(network, title, vector, images, labels, noise)
    alone = [
        _step(network, title, vector, *(each[i, None] for each in (images, labels, noise)))[1] for i in range(BATCH)
    ]
    if torch.allclose(torch.stack(alone).mean(dim=0), gradient, rtol=1e-2, atol=1e-4 * float(gradient.abs().max())):
        return True
    if vector.dtype == torch.float64:
        return False
    # A rounding error may carry a unit across a kink, as that of ReLU; in double precision hardly ever.
    try:
        return _adds_up(network, title, vector.double(), images, labels, noise.double())
    except NetworkError:  # a module for single precision alone
        return False


def _step(
    network: Network, title: str, vector: Tensor, images: Tensor, labels: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss and gradient of a batch, and a prediction for it."""
    gradient = torch.empty_like(vector)
    try:
        loss = network.gradient(vector, images, labels, noise, 1e-3, gradient)
        network.predict(vector, images, 1, torch.Generator(network.device).manual_seed(0))
    except NetworkError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise NetworkError(f"{title}: fails on a batch of {len(images)}: {reason}") from None
    return loss, gradient
