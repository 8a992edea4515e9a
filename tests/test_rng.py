"""Random numbers by address: (seed, purpose, round, client)."""

import itertools
import random

import numpy as np
import pytest
import torch

from bflp.rng import PURPOSES, numpy_generator, torch_generator

NUMBERS = (0, 1, 2, 10, 255, 2**16, 2**31 - 1)
ADDRESSES = list(itertools.product((0, 1, 2, 7, 2**32 - 1), PURPOSES, NUMBERS, NUMBERS))


def numpy_stream(*address):
    return tuple(numpy_generator(*address).integers(0, 2**63, 2).tolist())


def torch_stream(*address):
    return tuple(torch.randint(0, 2**63 - 1, (2,), generator=torch_generator(*address)).tolist())


@pytest.mark.parametrize("stream", [numpy_stream, torch_stream])
def test_other_address_other_stream(stream):
    streams = {stream(*address) for address in ADDRESSES}
    assert len(streams) == len(ADDRESSES)


@pytest.mark.parametrize("stream", [numpy_stream, torch_stream])
def test_same_address_same_stream(stream):
    for address in ADDRESSES[:: len(ADDRESSES) // 50]:
        assert stream(*address) == stream(*address)


@pytest.mark.parametrize("stream", [numpy_stream, torch_stream])
def test_trailing_zeros_do_not_coincide(stream):
    """A seed sequence of (1, 2) is that of (1, 2, 0): the parts of an address must keep their places."""
    seed, purpose = 1, PURPOSES[1]
    streams = [
        stream(seed, purpose, 0, 0),
        stream(seed, purpose, 0, 1),
        stream(seed, purpose, 1, 0),
        stream(0, purpose, 0, 0),
        stream(seed, PURPOSES[0], 0, 0),
        stream(0, PURPOSES[0], 0, 0),
    ]
    assert len(set(streams)) == len(streams)
    assert stream(seed, purpose) == streams[0]
    assert stream(seed, purpose, 1) == streams[2]


def test_generators_do_not_share_state_and_leave_the_global_ones_alone():
    random_state, torch_state = random.getstate(), torch.get_rng_state()
    numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002
    one, other = numpy_generator(0, "shuffling", 1, 1), numpy_generator(0, "shuffling", 1, 1)
    first = one.random(3).tolist()
    assert other.random(3).tolist() == first
    assert one.random(3).tolist() != first
    torch.rand(3, generator=torch_generator(0, "shuffling"))
    assert random.getstate() == random_state
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.random.get_state()[1].tolist() == numpy_state  # noqa: NPY002


def test_unknown_purpose():
    with pytest.raises(ValueError):
        numpy_generator(0, "lunch")
