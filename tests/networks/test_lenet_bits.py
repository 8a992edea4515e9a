"""LeNet's numbers, bit for bit, as they were when the paper's kept results were made."""

import hashlib
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bflp.networks.lenet import LeNet, LeNetLayout
from bflp.networks.posterior import Posterior

# (initial vector, loss and gradient, prediction), frozen with torch 2.14.1 on an AMD processor with AVX2
FROZEN = {
    ((1, 28, 28), True): ("c3558cf3c514c0fd", "48ab523a0ce728b8", "d4850ff5fdf6ced4"),
    ((1, 28, 28), False): ("381f6f6947b4a76f", "85e28dc3d2b68399", "a5cf5447816c6dc7"),
    ((3, 32, 32), True): ("7155a481640f796f", "948b1c0c99d165c1", "fb6e6305e4402f35"),
    ((3, 32, 32), False): ("5d428f5fce54137f", "33c5b0b3a7ddbbc3", "512ceb848a1fc54e"),
    ((2, 17, 19), True): ("f10cf4fdd482faf6", "dce6ec95f744181f", "23469a95789330b8"),
    ((2, 17, 19), False): ("39963cb5cfc23270", "cc554479c45ea5c8", "d0c46033b136f2c5"),
}
PARAMETRIZE = pytest.mark.parametrize(("shape", "variational"), list(FROZEN), ids=str)


def sha256(*tensors: Tensor) -> str:
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


def is_the_frozen_kind_of_machine() -> bool:
    """Sums in matrix products depend on processor and version of torch."""
    cpu = Path("/proc/cpuinfo")
    amd = cpu.exists() and "AuthenticAMD" in cpu.read_text()
    return amd and torch.backends.cpu.get_cpu_capability() == "AVX2" and torch.__version__.startswith("2.14.1")


@PARAMETRIZE
def test_initial_vector(shape: tuple[int, int, int], variational: bool) -> None:
    vector = LeNetLayout(shape, 10, variational).initial_vector(-9.0, torch.Generator().manual_seed(3))
    assert sha256(vector) == FROZEN[shape, variational][0]


@pytest.mark.skipif(not is_the_frozen_kind_of_machine(), reason="frozen on another kind of machine")
@PARAMETRIZE
def test_gradient_and_prediction(shape: tuple[int, int, int], variational: bool) -> None:
    layout = LeNetLayout(shape, 10, variational)
    vector = layout.initial_vector(-9.0, torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(5)
    vector[layout.log_variances].uniform_(-9.0, 0.0, generator=generator)
    images, labels = torch.rand(7, *shape, generator=generator), torch.randint(10, (7,), generator=generator)
    noise = torch.randn(7, layout.noise_size, generator=generator) if variational else None
    network, gradient = LeNet(layout, Posterior(0.1, 0.7), "cpu"), torch.empty_like(vector)
    loss = network.gradient(vector, images, labels, noise, 1e-3, gradient)
    predicted = network.predict(vector, images, 3, generator)
    found = sha256(loss.clone().reshape(1), gradient), sha256(*predicted)
    assert found == FROZEN[shape, variational][1:]
