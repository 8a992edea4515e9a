"""On a CUDA device: the same gradients as on the CPU, and the same bits for any number of processes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bflp.datasets import prepared as arrays
from bflp.engine.client import client_update
from bflp.engine.cuda_graph import Replay
from bflp.files import canonical_json
from bflp.grid.job import Job
from bflp.networks.layout import Layout
from bflp.networks.lenet import Network, Posterior
from bflp.partition import files
from bflp.runtime.cell import run_cell

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("variational", [False, True])
def test_gradient_is_that_of_the_cpu(variational: bool) -> None:
    layout = Layout((3, 32, 32), 10, variational)
    generator = torch.Generator().manual_seed(0)
    vector = layout.initial_vector(-6.0, generator)
    images = torch.rand((64, 3, 32, 32), generator=generator)
    labels = torch.randint(0, 10, (64,), generator=generator)
    noise = torch.randn((64, layout.units), generator=generator) if variational else None
    gradients = []
    for device in ("cpu", "cuda"):
        gradient = torch.empty_like(vector, device=device)
        on_device = None if noise is None else noise.to(device)
        network = Network(layout, Posterior(), device)
        network.gradient(vector.to(device), images.to(device), labels.to(device), on_device, 1e-3, gradient)
        gradients.append(gradient.cpu())
    assert torch.linalg.norm(gradients[1] - gradients[0]) < 1e-4 * torch.linalg.norm(gradients[0])


@pytest.mark.parametrize("variational", [False, True])
def test_replayed_steps_are_the_steps(variational: bool) -> None:
    layout = Layout((1, 28, 28), 10, variational)
    generator = torch.Generator().manual_seed(0)
    vector = layout.initial_vector(-6.0, generator).cuda()
    network = Network(layout, Posterior(), "cuda")
    training = {"local_epochs": 3, "batch_size": 64, "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 1e-5}
    replay = Replay()
    # Unlike sizes: each has its own weight of the divergence, so nothing recorded before may be used again.
    for client, samples in enumerate([200, 130, 200, 30, 64]):
        images = torch.rand((samples, 1, 28, 28), generator=generator).cuda()
        labels = torch.randint(0, 10, (samples,), generator=generator).cuda()
        call = (network, vector, images, labels, {"augment": None, "training": training}, (0, 1, client))
        expected, expected_loss = client_update(*call)
        found, loss = client_update(*call, replay)
        assert torch.linalg.norm(found - expected) < 1e-5 * torch.linalg.norm(expected - vector)
        assert loss == pytest.approx(expected_loss, rel=1e-5)


@pytest.mark.parametrize("model", ["FED", "FEDAVG", "FVBA", "FVBWA"])
def test_processes_never_change_a_bit(model: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (1200, 1, 28, 28), dtype=np.uint8)
    dataset = arrays.Dataset(images[:1000], np.arange(1000) % 10, images[1000:], np.arange(200) % 10)
    arrays.save(dataset, tmp_path / "data.npz")
    partition = {"strategy": "quantity", "alpha": 0.5, "min_samples": 10}
    clients = {"dataset": "data", "name": "uneven", "clients": 5, "seed": 0, "settings": partition}
    data_hash = arrays.read_summary(tmp_path / "data.npz")["sha256"]
    files.save(files.make(dataset.train_labels, clients, data_hash), dataset.train_labels, tmp_path / "part.npz")
    variational = model in ("FVBA", "FVBWA")
    cell = {"dataset": "data", "partition": "uneven", "clients": 5, "model": model, "seed": 0}
    settings = {
        "augment": {"crop_padding": 2, "flip_probability": 0.5},
        "partition": partition,
        "setup": {"fraction": 1.0, "rounds": 2},
        "training": {
            "local_epochs": 2,
            "batch_size": 64,
            "learning_rate": 0.01,
            "momentum": 0.9,
            "weight_decay": 1e-5,
        },
        "evaluation": {"ece_bins": 20, "every": 1, "monte_carlo_samples": 3, "out_of_distribution": None},
    }
    if variational:
        log_variance = {"initial": -9.0, "bounds": [-8.0, 8.0], "enforce": "clamp"}
        settings["posterior"] = {"prior": {"mean": 0.0, "standard_deviation": 1.0}, "log_variance": log_variance}
    whole = {"cell": {**cell, "aggregator": "EAA" if variational else "none"}, "settings": settings, "fingerprint": ""}
    job = Job.parse(canonical_json(whole), tmp_path / "data.npz", tmp_path / "part.npz", "cuda")
    results = []
    for processes in (1, 3):
        folder = tmp_path / str(processes)
        pace = {"rounds": 1, "seconds": 1e9}
        written = (folder / "r.json", folder / "m.safetensors", folder / "checkpoint")
        run_cell(job, processes, *written, pace, lambda loaded: {})
        result = json.loads((folder / "r.json").read_text())
        results.append(({**result, "environment": 0, "timing": 0}, (folder / "m.safetensors").read_bytes()))
    assert results[0] == results[1]
