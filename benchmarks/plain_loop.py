"""The baseline of the benchmarks: a plain, competent federated loop.

Persistent worker processes with one thread each, data in memory, standard torch layers, autograd and torch's SGD; no
data loader, no files, no copies of the data per round. What a careful person would write without further tricks.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bflp.networks.lenet import LeNetLayout
from bflp.networks.posterior import Posterior
from tests.oracles.plain import LeNet

_worker: dict[str, Any] = {}


def _start(layout: LeNetLayout, images: Tensor, labels: Tensor, training: dict[str, Any], device: str) -> None:
    torch.set_num_threads(1)
    network = LeNet(layout, Posterior()).to(device)
    _worker.update(layout=layout, images=images.to(device), labels=labels.to(device), training=training)
    _worker.update(network=network, device=device)


def _train(task: tuple[Tensor, Tensor]) -> Tensor:
    """Local training of one client: (the server's model [D], the client's indices [n]) -> the client's model [D]."""
    vector, indices = task
    layout, network, training = _worker["layout"], _worker["network"], _worker["training"]
    device = _worker["device"]
    network.load_vector(layout, vector.to(device))
    optimiser = torch.optim.SGD(
        network.parameters(),
        lr=training["learning_rate"],
        momentum=training["momentum"],
        weight_decay=training["weight_decay"],
    )
    images, labels, count = _worker["images"][indices], _worker["labels"][indices], len(indices)
    for _ in range(training["local_epochs"]):
        for chosen in torch.randperm(count).split(training["batch_size"]):
            noise = torch.randn(len(chosen), layout.noise_size, device=device) if layout.variational else None
            optimiser.zero_grad()
            network.loss(images[chosen], labels[chosen], noise, 1.0 / count).backward()
            optimiser.step()
    parameters = dict(network.named_parameters())
    return torch.cat([parameters[name].detach().flatten() for name in layout.tensors]).cpu()


class PlainLoop:
    """A pool of plain workers."""

    def __init__(
        self, layout: LeNetLayout, images: Tensor, labels: Tensor, training: dict[str, Any], processes: int, device: str
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.pool = context.Pool(processes, _start, (layout, images, labels, training, device))

    def round(self, vector: Tensor, clients: Sequence[Tensor]) -> list[Tensor]:
        """Local training of all clients of a round, each given by its indices."""
        return self.pool.map(_train, [(vector, indices) for indices in clients], chunksize=1)

    def close(self) -> None:
        self.pool.terminate()
        self.pool.join()
