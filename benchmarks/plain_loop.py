"""The baseline of the benchmarks: a plain, competent federated loop.

Persistent worker processes with one thread each, data in memory, standard torch layers, autograd and torch's SGD; no
data loader, no files, no copies of the data per round. What a careful person would write without further tricks.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bflp.networks.layout import Layout
from tests.oracles.plain import LeNet

_worker: dict[str, Any] = {}


def _start(
    network: nn.Module, layout: Layout, images: Tensor, labels: Tensor, training: dict[str, Any], device: str
) -> None:
    torch.set_num_threads(1)
    _worker.update(layout=layout, images=images.to(device), labels=labels.to(device), training=training)
    _worker.update(network=network.to(device), device=device)


def _train(task: tuple[Tensor, Tensor]) -> Tensor:
    """Local training of one client: (the server's model [D], the client's indices [n]) -> the client's model [D]."""
    vector, indices = task
    layout, network, training = _worker["layout"], _worker["network"], _worker["training"]
    device, parameters = _worker["device"], dict(network.named_parameters())
    with torch.no_grad():
        for name, values in layout.views(vector.to(device)).items():
            parameters[name].copy_(values)
    optimiser = torch.optim.SGD(
        network.parameters(),
        lr=training["learning_rate"],
        momentum=training["momentum"],
        weight_decay=training["weight_decay"],
    )
    images, labels, count = _worker["images"][indices], _worker["labels"][indices], len(indices)
    for _ in range(training["local_epochs"]):
        for chosen in torch.randperm(count).split(training["batch_size"]):
            optimiser.zero_grad()
            if isinstance(network, LeNet):
                noise = torch.randn(len(chosen), layout.noise_size, device=device) if layout.noise_size else None
                loss = network.loss(images[chosen], labels[chosen], noise, 1.0 / count)
            else:
                loss = F.cross_entropy(network(images[chosen]), labels[chosen])
            loss.backward()
            optimiser.step()
    return torch.cat([parameters[name].detach().flatten() for name in layout.tensors]).cpu()


class PlainLoop:
    """A pool of plain workers. network: its parameters have the names of the layout's tensors."""

    def __init__(
        self,
        network: nn.Module,
        layout: Layout,
        images: Tensor,
        labels: Tensor,
        training: dict[str, Any],
        processes: int,
        device: str,
    ) -> None:
        # Processes that are forked from one that has used CUDA cannot use it.
        context = multiprocessing.get_context("fork" if device == "cpu" else "spawn")
        others = {child.pid for child in multiprocessing.active_children()}
        self.pool = context.Pool(processes, _start, (network, layout, images, labels, training, device))
        self.workers = [child.pid for child in multiprocessing.active_children() if child.pid not in others]

    def round(self, vector: Tensor, clients: Sequence[Tensor]) -> list[Tensor]:
        """Local training of all clients of a round, each given by its indices."""
        return self.pool.map(_train, [(vector, indices) for indices in clients], chunksize=1)

    def close(self) -> None:
        self.pool.terminate()
        self.pool.join()
