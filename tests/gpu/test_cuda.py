"""On a CUDA device: the same gradients as on the CPU, and the same bits for any number of processes."""

import numpy as np
import pytest
import torch
from tiny_federation import TinyFederation

from bflp.engine.client import client_update
from bflp.engine.cuda_graph import Replay
from bflp.engine.inputs import Inputs
from bflp.engine.settings import CellSettings, PosteriorSettings, Training
from bflp.engine.stack import Stack
from bflp.networks.lenet import LeNet, LeNetLayout
from bflp.networks.posterior import Posterior

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("variational", [False, True])
def test_gradient_is_that_of_the_cpu(variational: bool) -> None:
    layout = LeNetLayout((3, 32, 32), 10, variational)
    generator = torch.Generator().manual_seed(0)
    vector = layout.initial_vector(-6.0, generator)
    images = torch.rand((64, 3, 32, 32), generator=generator)
    labels = torch.randint(0, 10, (64,), generator=generator)
    noise = torch.randn((64, layout.noise_size), generator=generator) if variational else None
    gradients = []
    for device in ("cpu", "cuda"):
        gradient = torch.empty_like(vector, device=device)
        on_device = None if noise is None else noise.to(device)
        network = LeNet(layout, Posterior(), device)
        network.gradient(vector.to(device), images.to(device), labels.to(device), on_device, 1e-3, gradient)
        gradients.append(gradient.cpu())
    assert torch.linalg.norm(gradients[1] - gradients[0]) < 1e-4 * torch.linalg.norm(gradients[0])


@pytest.mark.parametrize("variational", [False, True])
def test_replayed_steps_are_the_steps(variational: bool) -> None:
    layout = LeNetLayout((1, 28, 28), 10, variational)
    generator = torch.Generator().manual_seed(0)
    vector = layout.initial_vector(-6.0, generator).cuda()
    network = LeNet(layout, Posterior(), "cuda")
    training = Training(local_epochs=3, batch_size=64, learning_rate=0.05, momentum=0.9, weight_decay=1e-5)
    settings = CellSettings(0, 5, 1.0, 1, "equal", training, 1, 1, None, None, "none", "exact")
    replay = Replay()
    # Unlike sizes: each has its own weight of the divergence, so nothing recorded before may be used again.
    for client, samples in enumerate([200, 130, 200, 30, 64]):
        images = torch.randint(0, 256, (samples, 1, 28, 28), generator=generator, dtype=torch.uint8).cuda()
        labels = torch.randint(0, 10, (samples,), generator=generator).cuda()
        expected = client_update(network, vector, images, labels, settings, 1, client)
        found = client_update(network, vector, images, labels, settings, 1, client, replay)
        moved = torch.linalg.norm(expected.vector - vector)
        assert torch.linalg.norm(found.vector - expected.vector) < 1e-5 * moved
        assert found.loss == pytest.approx(expected.loss, rel=1e-5)


@pytest.mark.parametrize(("model", "rule"), [("FED", None), ("FEDAVG", None), ("FVBA", "EAA"), ("FVBWA", "EAA")])
def test_processes_never_change_a_bit(tiny: TinyFederation, model: str, rule: str | None) -> None:
    augment = {"tiny": {"source": str(tiny.data_file), "augment": {"crop_padding": 2, "flip_probability": 0.5}}}
    job = tiny.job(model, rule, datasets=augment)
    _, *one = tiny.run(job, "one", device="cuda")
    _, *three = tiny.run(job, "three", processes=3, device="cuda")
    assert one == three


@pytest.mark.parametrize("variational", [False, True])
def test_a_recorded_stack_gives_what_clients_get_alone(variational: bool) -> None:
    """One recording for clients of unlike sizes, smaller last batches, a part of the stack that is idle, two rounds."""
    generator, sizes = np.random.default_rng(0), [200, 130, 40, 64]
    images = generator.integers(0, 256, (sum(sizes), 3, 32, 32), dtype=np.uint8)
    labels, offsets = generator.integers(0, 10, sum(sizes)), np.concatenate([[0], np.cumsum(sizes)])
    data = Inputs(images, labels, images[:1], labels[:1], 10, np.arange(sum(sizes)), offsets)
    training = Training(3, batch_size=64, learning_rate=0.05, momentum=0.9, weight_decay=1e-5, learning_rate_decay=0.9)
    augment = {"crop_padding": 4, "flip_probability": 0.5}
    gaussian = PosteriorSettings("variational", 0.0, 1.0, -6.0, (-8.0, 8.0), "clamp", "dense") if variational else None
    settings = CellSettings(0, 4, 1.0, 2, "equal", training, 1, 1, augment, gaussian, "none", "exact")
    layout = LeNetLayout((3, 32, 32), 10, variational)
    network = LeNet(layout, Posterior(), "cuda")
    vector = layout.initial_vector(-6.0, torch.Generator().manual_seed(0)).cuda()
    stack = Stack(network, settings, data, 3)
    for round_, clients in ((1, [0, 1, 3]), (2, [1, 2])):
        for client, found in zip(clients, stack.train(vector, round_, clients), strict=True):
            own = slice(offsets[client], offsets[client + 1])
            parts = torch.from_numpy(images[own]).cuda(), torch.from_numpy(labels[own]).cuda()
            expected = client_update(network, vector, *parts, settings, round_, client)
            assert torch.linalg.norm(found.vector - expected.vector) < 1e-3 * torch.linalg.norm(
                expected.vector - vector
            )
            assert found.loss == pytest.approx(expected.loss, rel=1e-4)


@pytest.mark.parametrize(("model", "rule"), [("FEDAVG", None), ("FVBWA", "EAA")])
def test_processes_never_change_a_bit_of_stacks(tiny: TinyFederation, model: str, rule: str | None) -> None:
    job = tiny.job(model, rule, training={"stack": 2})
    _, *one = tiny.run(job, "one", device="cuda")
    _, *three = tiny.run(job, "three", processes=3, device="cuda")
    assert one == three
