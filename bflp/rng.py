"""Every random number has an address: (seed, purpose, round, client).

Nothing draws from a global generator, so results do not depend on the number of processes, on the order in
which clients finish, or on whether a run was interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

PURPOSES = (
    "partition",
    "initial model",
    "client selection",
    "shuffling",
    "augmentation",
    "training noise",
    "aggregation",
    "evaluation noise",
    "out-of-distribution noise",
    "held out",
    "weight noise",
    "held-out noise",
)


def numpy_generator(seed: int, purpose: str, round_: int = 0, client: int = 0) -> np.random.Generator:
    """The generator of one address. `seed` is in [0, 2^32); `round_` and `client` are 0 where they mean nothing."""
    return np.random.default_rng(_sequence(seed, purpose, round_, client))


def torch_generator(seed: int, purpose: str, round_: int = 0, client: int = 0, device: str = "cpu") -> torch.Generator:
    """As `numpy_generator`, for torch on `device`."""
    import torch

    state = int(_sequence(seed, purpose, round_, client).generate_state(1, np.uint64)[0])
    generator = torch.Generator(device=device)
    generator.manual_seed(state >> 1)  # torch takes 63 bits
    return generator


def _sequence(seed: int, purpose: str, round_: int, client: int) -> np.random.SeedSequence:
    # Always four words: SeedSequence pads with zeros, so addresses of different lengths could coincide.
    return np.random.SeedSequence([seed, PURPOSES.index(purpose), round_, client])
