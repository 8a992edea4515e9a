"""A client's images become floating-point numbers one batch at a time, and the same ones as all at once."""

from types import SimpleNamespace

import torch
from tiny_federation import LARGEST, SIZES
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bflp.engine.batches import Batches
from bflp.engine.work import Broadcast, Train
from bflp.rng import torch_generator


def test_batches_have_the_bits_of_all_images_converted_at_once():
    images = torch.arange(20 * 3 * 4).remainder(256).to(torch.uint8).reshape(20, 3, 2, 2)
    settings = SimpleNamespace(seed=1, augment=None, training=SimpleNamespace(batch_size=7))
    batches = Batches(images, torch.arange(20), settings, 2, 3, 0)
    shuffling = torch_generator(1, "shuffling", 2, 3)
    for _ in range(2):
        rows = torch.randperm(20, generator=shuffling)
        found = [(batch.inputs.clone(), batch.labels) for batch in batches.epoch()]
        assert [len(inputs) for inputs, _ in found] == [7, 7, 6]
        assert torch.equal(torch.cat([labels for _, labels in found]), rows)
        assert torch.equal(torch.cat([inputs for inputs, _ in found]), (images.float() / 255)[rows])


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest floating-point tensor has that is made."""

    numbers = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        made = function(*arguments, **(keywords or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                self.numbers = max(self.numbers, tensor.numel())
        return made


def test_no_client_has_all_of_its_images_as_numbers(tiny):
    work = tiny.assignment(tiny.job("FED", network={"name": "mlp", "sizes": [2]})).work()
    broadcast, pixels, batch = Broadcast(work.initial), 16 * 16, 16
    with Largest() as largest:
        work.train(broadcast, Train(1, LARGEST))
    assert SIZES[LARGEST] > 2 * batch and largest.numbers == batch * pixels
