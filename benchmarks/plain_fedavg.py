"""FedAvg on one partition as a plain PyTorch program, beside what a cell got: is it the method, or the partition?

    python benchmarks/plain_fedavg.py RESULT --data FILE --partition FILE [--rounds 3]

RESULT: a cell's JSON of a row without a posterior and without an algorithm of its own, by LeNet. Standard layers,
autograd, torch's SGD, weights by data size; nothing of bflp computes a number. The initial weights and the order of the
samples are others than the cell's, so that accuracies agree as those of two seeds do.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.oracles.plain import build


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="the prepared data set, such as data/cifar10.npz")
    parser.add_argument("--partition", type=Path, required=True, help="such as results/partitions/.../seed0.npz")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    cell = json.loads(arguments.result.read_text(encoding="utf-8"))
    data = {name: torch.from_numpy(values) for name, values in np.load(arguments.data).items()}
    partition = np.load(arguments.partition)
    clients = [torch.from_numpy(each) for each in np.split(partition["indices"], partition["offsets"][1:-1])]
    network = build(tuple(data["train_images"].shape[1:]), int(data["train_labels"].max()) + 1)
    print("round  plain  the cell   seconds")
    for entry in cell["rounds"][: arguments.rounds]:
        began = time.perf_counter()
        server = {name: values.clone() for name, values in network.state_dict().items()}
        sums = {name: torch.zeros_like(values, dtype=torch.float64) for name, values in server.items()}
        for client in clients:
            network.load_state_dict(server)
            train(network, data["train_images"][client], data["train_labels"][client], cell["settings"])
            share = len(client) / sum(map(len, clients)) if cell["settings"]["weights"] == "data" else 1 / len(clients)
            for name, values in network.state_dict().items():
                sums[name] += share * values.double()
        network.load_state_dict({name: values.float() for name, values in sums.items()})
        with torch.no_grad():
            guesses = torch.cat([network(part.float() / 255).argmax(1) for part in data["test_images"].split(500)])
        accuracy = 100 * float((guesses == data["test_labels"]).float().mean())
        seconds = time.perf_counter() - began
        print(f"{entry['round']:5d} {accuracy:6.2f} {entry['accuracy']:9.2f} {seconds:9.0f}", flush=True)


def train(network: torch.nn.Module, images: Tensor, labels: Tensor, settings: dict[str, Any]) -> None:
    """The local epochs of one client: images [n, C, H, W] as bytes, labels [n]."""
    training, augment = settings["training"], settings["augment"]
    rates = {"lr": training["learning_rate"], "momentum": training["momentum"]}
    optimiser = torch.optim.SGD(network.parameters(), weight_decay=training["weight_decay"], **rates)
    for _ in range(training["local_epochs"]):
        for chosen in torch.randperm(len(labels)).split(training["batch_size"]):
            batch = images[chosen].float() / 255
            if augment:
                batch = augmented(batch, augment["crop_padding"], augment["flip_probability"])
            optimiser.zero_grad()
            F.cross_entropy(network(batch), labels[chosen]).backward()
            optimiser.step()


def augmented(images: Tensor, padding: int, flip_probability: float) -> Tensor:
    """[B, C, H, W], each padded by reflection, cut out at random and mirrored at random."""
    (count, channels, height, width) = images.shape
    padded = F.pad(images, (padding,) * 4, mode="reflect")
    top, left = torch.randint(2 * padding + 1, (2, count, 1))
    rows, columns = top + torch.arange(height), left + torch.arange(width)
    columns = torch.where(torch.rand(count, 1) < flip_probability, columns.flip(1), columns)
    places = torch.arange(count)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return padded[*places, rows[:, None, :, None], columns[:, None, None, :]]


if __name__ == "__main__":
    main()
