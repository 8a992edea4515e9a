"""What executes clients and evaluations: in this process, or, one in each, in the processes of a pool.

A worker keeps nothing from one task to the next but buffers, so that it does not matter which worker does what.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bflp.datasets import prepared as arrays
from bflp.engine.client import client_update
from bflp.engine.cuda_graph import Replay
from bflp.grid.job import Job
from bflp.grid.loaded import loaded_modules
from bflp.networks.layout import Layout
from bflp.networks.lenet import Network, Posterior
from bflp.partition import files as partition_files
from bflp.rng import torch_generator

# Test images per evaluation task. Part of every result: the noise is drawn per chunk.
EVALUATION_CHUNK = 500

Floats = NDArray[np.float32]


class Worker:
    """Trains clients and evaluates models for one job."""

    def __init__(self, job: Job) -> None:
        # One thread each: the parallelism is over clients, and results must not depend on thread counts.
        torch.set_num_threads(1)
        if job.device != "cpu":
            # What names no device is then on the cell's card, too.
            torch.cuda.set_device(torch.device(job.device).index or 0)
            # Not on the CPU, where all that is used here is deterministic: it imports torch's compiler, for a second.
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        self.job = job
        self.data = arrays.open_prepared(job.data_file)
        self.train_labels = self.data.train_labels
        self.partition = partition_files.load(job.partition_file)
        self.ood_images = arrays.open_prepared(job.ood_file).test_images if job.ood_file else None
        self.layout = Layout(self.data.image_shape, self.data.labels, job.variational)
        self.network = Network(self.layout, posterior_of(job), job.device)
        self.replay = None if job.device == "cpu" else Replay()

    def train(self, vector: Tensor, round_: int, client: int) -> tuple[Tensor, float]:
        """The parameters [D] (on the CPU) and mean loss of a client that starts from `vector` [D]."""
        indices = self.partition.client(client)
        images = self._pixels(self.data.train_images[indices])
        labels = torch.from_numpy(self.train_labels[indices]).to(self.job.device)
        address = (self.job.seed, round_, client)
        start = vector.to(self.job.device)
        trained, loss = client_update(self.network, start, images, labels, self.job.settings, address, self.replay)
        return trained.cpu(), loss

    def evaluate(self, vector: Tensor, round_: int, chunk: int) -> tuple[Floats, Floats]:
        """Probabilities [n, L] and mean entropies [n] (of the Monte Carlo samples) for one chunk of the test images."""
        return self._predict(vector, self.data.test_images, "evaluation noise", round_, chunk)

    def evaluate_ood(self, vector: Tensor, round_: int, chunk: int) -> tuple[Floats, Floats]:
        """As `evaluate`, for the out-of-distribution data set."""
        assert self.ood_images is not None
        return self._predict(vector, self.ood_images, "out-of-distribution noise", round_, chunk)

    def loaded(self, vector: Tensor, round_: int, item: int) -> set[str]:
        """The modules of the project that this process has imported; the arguments mean nothing."""
        return loaded_modules()

    def _predict(
        self, vector: Tensor, all_images: NDArray[np.uint8], purpose: str, round_: int, chunk: int
    ) -> tuple[Floats, Floats]:
        images = self._pixels(all_images[chunk * EVALUATION_CHUNK : (chunk + 1) * EVALUATION_CHUNK])
        generator = torch_generator(self.job.seed, purpose, round_, chunk, device=self.job.device)
        samples = self.job.settings["evaluation"].get("monte_carlo_samples", 1)
        probabilities, entropies = self.network.predict(vector.to(self.job.device), images, samples, generator)
        return probabilities.cpu().numpy(), entropies.cpu().numpy()

    def _pixels(self, images: NDArray[np.uint8]) -> Tensor:
        """uint8 [n, C, H, W] -> float32 in [0, 1] on the device."""
        return torch.from_numpy(np.array(images)).to(self.job.device).float().div_(255)


def chunks(images: int) -> range:
    """The evaluation chunks of so many images."""
    return range(-(-images // EVALUATION_CHUNK))


def posterior_of(job: Job) -> Posterior:
    """The network's prior and bounds as the cell's settings say."""
    if not job.variational:
        return Posterior()
    prior, log_variance = job.settings["posterior"]["prior"], job.settings["posterior"]["log_variance"]
    return Posterior(prior["mean"], prior["standard_deviation"], tuple(log_variance["bounds"]), log_variance["enforce"])
