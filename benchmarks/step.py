"""Milliseconds of a training step and seconds of a prediction: the hand-written LeNet, the general path, plain torch.

    python benchmarks/step.py [--profile] [--threads N] [--repeats N]

They alternate in one process, so that a busy machine slows all; medians and minima are over the repeats. A step is the
gradient of a batch of 64 and the SGD update, with weight decay and momentum. Plain: nn.Module, autograd,
torch.optim.SGD, and cross entropy with the KL divergence as a user would write them. General: the same LeNet as a plain
module that the product makes Bayesian.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

# The profiler's own messages.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bflp.networks import Network
from bflp.networks.lenet import LeNet, LeNetLayout, build
from bflp.networks.plain import PlainNetwork
from bflp.networks.posterior import Posterior
from tests.oracles.plain import LeNet as PlainLeNet

BATCH = 64
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 1e-5
KL_WEIGHT = 1.0 / 6000
SHAPES = {"fmnist": (1, 28, 28), "cifar10": (3, 32, 32)}
Step = Callable[[], object]


def plain_step(layout: LeNetLayout, images: torch.Tensor, labels: torch.Tensor) -> Step:
    network = PlainLeNet(layout, Posterior())
    network.load_vector(layout, layout.initial_vector(-6.0, torch.Generator().manual_seed(0)))
    optimiser = torch.optim.SGD(
        network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, foreach=True
    )

    def step() -> None:
        noise = torch.randn(BATCH, layout.noise_size) if layout.variational else None
        optimiser.zero_grad()
        network.loss(images, labels, noise, KL_WEIGHT).backward()
        optimiser.step()

    return step


def fast_step(layout: LeNetLayout, images: torch.Tensor, labels: torch.Tensor) -> Step:
    return network_step(LeNet(layout, Posterior(), "cpu"), images, labels)


def general_step(layout: LeNetLayout, images: torch.Tensor, labels: torch.Tensor) -> Step:
    make = partial(build, layout.image_shape, layout.labels)
    variational = "dense" if layout.variational else "none"
    network = PlainNetwork("lenet", make, layout.image_shape, layout.labels, variational, Posterior(), "cpu")
    return network_step(network, images, labels)


def network_step(network: Network, images: torch.Tensor, labels: torch.Tensor) -> Step:
    vector = network.layout.initial_vector(-6.0, torch.Generator().manual_seed(0))
    gradient, velocity = torch.empty_like(vector), torch.zeros_like(vector)
    noise = torch.empty(BATCH, network.layout.noise_size) if network.layout.noise_size else None

    def step() -> None:
        if noise is not None:
            noise.normal_()
        network.gradient(vector, images, labels, noise, KL_WEIGHT, gradient)
        gradient.add_(vector, alpha=WEIGHT_DECAY)
        velocity.mul_(MOMENTUM).add_(gradient)
        vector.sub_(velocity, alpha=LEARNING_RATE)

    return step


def milliseconds(step: Step, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count * 1e3


def interleaved(steps: list[Step], repeats: int, count: int = 10) -> list[list[float]]:
    """Milliseconds per call, [step][repeat]."""
    for step in steps:
        milliseconds(step, 5)
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(repeats):
        for step, record in zip(steps, times, strict=True):
            record.append(milliseconds(step, count))
    return times


def compare_steps(repeats: int) -> None:
    names = [make.__name__.removesuffix("_step") for make in MAKERS]
    ratios = [f"{name} / fast" for name in names[1:]]
    print(f"{f'ms per step, batch {BATCH}':24}", *(f"{name:>14}" for name in (*names, *ratios)))
    for name, shape in SHAPES.items():
        for variational in (True, False):
            layout, images, labels = case(shape, variational, BATCH)
            times = interleaved([make(layout, images, labels) for make in MAKERS], repeats)
            for kind, of in (("median", statistics.median), ("minimum", min)):
                found = [of(each) for each in times]
                title = f"{name}, {'variational' if variational else 'deterministic'}"
                cells = [f"{number:14.2f}" for number in (*found, *(number / found[0] for number in found[1:]))]
                print(f"{title if kind == 'median' else '  minimum':24}", *cells)


def time_prediction(repeats: int, images: int = 10_000, samples: int = 10) -> None:
    for chunk in (500, 1000):
        layout, pixels, _ = case(SHAPES["fmnist"], True, chunk)
        network, generator = LeNet(layout, Posterior(), "cpu"), torch.Generator().manual_seed(0)
        vector = layout.initial_vector(-6.0, torch.Generator().manual_seed(0))
        [times] = interleaved([lambda: network.predict(vector, pixels, samples, generator)], repeats, 4)  # noqa: B023
        seconds = statistics.median(times) * images / chunk / 1e3
        print(f"fmnist, predicting {images} images, {samples} samples, {chunk} at a time: {seconds:.3f} s")


def case(shape: tuple[int, int, int], variational: bool, batch: int) -> tuple[LeNetLayout, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    layout = LeNetLayout(shape, 10, variational)
    images = torch.rand(batch, *shape, generator=generator)
    return layout, images, torch.randint(layout.labels, (batch,), generator=generator)


def print_profiles() -> None:
    for variational in (True, False):
        for make in MAKERS:
            step = make(*case(SHAPES["fmnist"], variational, BATCH))
            milliseconds(step, 10)
            with profile(activities=[ProfilerActivity.CPU]) as record:
                milliseconds(step, 100)
            print(f"\n{make.__name__}, fmnist, variational={variational}, 100 steps")
            print(record.key_averages().table("self_cpu_time_total", row_limit=20, max_name_column_width=40))


MAKERS = (fast_step, general_step, plain_step)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--profile", action="store_true", help="print the operations that take the most time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.profile:
        print_profiles()
        return
    compare_steps(arguments.repeats)
    time_prediction(arguments.repeats)


if __name__ == "__main__":
    main()
