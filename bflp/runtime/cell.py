"""Training one cell of the grid from its job to its result: the round loop with checkpoints.

Modules of this package are imported inside the functions where they would import torch: the server process of the
client pool is started first, and imports torch while this process does.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bflp.files import canonical_json, remove_leftovers
from bflp.grid.job import Job
from bflp.runtime import pool, termination
from bflp.runtime.lock import only_one

if TYPE_CHECKING:
    from torch import Tensor

    from bflp.engine.server import Aggregator
    from bflp.runtime.checkpoint import Progress
    from bflp.runtime.worker import Worker


# The share of the time that checkpoints may cost.
MOST_COST = 0.01


def run_cell(
    job: Job,
    processes: int,
    result_file: Path,
    model_file: Path,
    checkpoint_folder: Path,
    pace: dict[str, float],
    check_code: Callable[[Collection[str]], dict[str, str]],
    on_divergence: str = "stop",
) -> None:
    """Train the cell and write its JSON result and final model.

    Goes on from the newest checkpoint in `checkpoint_folder`, if there is one of this very job. pace: the checkpoint
    settings (`rounds` and `seconds` between two). check_code: called before the result is written, with the modules
    that workers have loaded; raises UserError when the code is not what the job names, else returns what the result
    records of it. on_divergence: "stop" or "record". Raises UserError; and Terminated, having saved a checkpoint, where
    the program handles signals.
    """
    began = time.perf_counter()
    with only_one(checkpoint_folder, str(job)):
        for file in (result_file, model_file):
            remove_leftovers(file)
        if processes > 1:
            pool.start_server()
        from bflp.runtime import inputs
        from bflp.runtime.worker import Worker, chunks

        worker = Worker(job)
        data = inputs.checked(job, worker)
        tasks = max(len(worker.partition.sizes), len(chunks(len(worker.data.test_labels))))
        workers = min(processes, tasks)
        with executor_for(job, worker, workers) as executor:
            loop = RoundLoop(job, worker, executor, checkpoint_folder, pace, data)
            startup = time.perf_counter() - began
            try:
                loop.run(began, on_divergence)
                final = loop.final()
                # As many tasks as workers: each answers once.
                loaded = executor.run(loop.progress.model, [("loaded", 0, index, 0.0) for index in range(workers)])
                code = check_code(set().union(*loaded))
                inputs.check_unchanged(job, data)
            except (termination.Terminated, pool.WorkerFailedError) as error:
                loop.save_unsaved(error)
                raise
            # Broken off from here on, the result would be there and the cell would count as failed all the same.
            termination.ignore()
            environment = {**_environment(job, processes), "code": code}
            _write(job, worker, loop.progress, final, environment, startup, data, result_file, model_file)
            loop.checkpoints.remove()


class RoundLoop:
    """Select clients, train them, combine their models, evaluate; once per communication round."""

    def __init__(
        self,
        job: Job,
        worker: Worker,
        executor: pool.Executor,
        checkpoint_folder: Path,
        pace: dict[str, float],
        data: dict[str, str | None],
    ) -> None:
        from bflp.engine.server import Aggregator
        from bflp.runtime.checkpoint import Checkpoints

        self.job, self.worker, self.executor, self.pace = job, worker, executor, pace
        self.aggregator: Aggregator = Aggregator(job, worker.layout)
        self.aggregator.try_out(job.cell["clients"], job.settings["setup"]["fraction"])
        self.labels = worker.data.test_labels
        identity = [job.cell, job.settings, job.fingerprint, data]
        self.checkpoints = Checkpoints(checkpoint_folder, canonical_json(identity))
        self.progress = self._start()
        self.saved_round, self.saved_time, self.save_seconds = self.progress.round, time.perf_counter(), 0.0

    def run(self, began: float, on_divergence: str) -> None:
        """All rounds that are left, or up to the one that diverged. `began`: the perf_counter of the job's start."""
        from bflp.runtime.progress import FILE_NAME, RoundProgress

        rounds, file = self.job.settings["setup"]["rounds"], self.checkpoints.folder / FILE_NAME
        earlier = self.progress.timing["total_seconds"]
        try:
            with RoundProgress(str(self.job), rounds, self.progress.round, file) as shown:
                while self.progress.round < rounds:
                    progress = self._round(self.progress)
                    progress.timing["total_seconds"] = earlier + time.perf_counter() - began
                    self.progress = progress
                    evaluated = progress.rounds and progress.rounds[-1]["round"] == progress.round
                    shown.update(progress.round, progress.rounds[-1]["accuracy"] if evaluated else None)
                    termination.check()
                    if progress.round < rounds:
                        self._save_in_time()
        except pool.DivergedError as error:
            if on_divergence == "stop":
                raise
            print(f"{self.job}: recorded as diverged: {error}", file=sys.stderr)
            self.progress.diverged = error.as_dict()

    def _save_in_time(self) -> None:
        now = time.perf_counter()
        # On a slow disk less often than the setting says, unless that is 0.
        least = max(self.pace["seconds"], self.save_seconds / MOST_COST) if self.pace["seconds"] else 0.0
        if self.progress.round - self.saved_round >= self.pace["rounds"] and now - self.saved_time >= least:
            self.checkpoints.save(self.progress)
            self.saved_round, self.saved_time = self.progress.round, time.perf_counter()
            self.save_seconds = self.saved_time - now

    def save_unsaved(self, reason: BaseException) -> None:
        """Save the rounds that no checkpoint holds yet, since the job ends for `reason`."""
        if self.progress.round > self.saved_round and self.progress.diverged is None:
            self.checkpoints.save(self.progress)
        if isinstance(reason, termination.Terminated):
            print(
                f"{self.job}: ended by {reason} after round {self.progress.round}; run it again to go on",
                file=sys.stderr,
            )

    def _start(self) -> Progress:
        from bflp.runtime.checkpoint import Progress

        found = self.checkpoints.newest()
        if found is not None:
            print(f"{self.job}: goes on after round {found.round}", file=sys.stderr)
            found.resumed_at = [*found.resumed_at, found.round]
            return found
        from bflp.rng import torch_generator

        log_variance = self.job.settings.get("posterior", {}).get("log_variance", {"initial": 0.0})
        layout = self.worker.layout
        model = layout.initial_vector(log_variance["initial"], torch_generator(self.job.seed, "initial model"))
        if log_variance.get("enforce") == "project":
            model[layout.log_variances].clamp_(*log_variance["bounds"])
        timing: dict[str, Any] = {f"{part}_seconds": [] for part in ("train", "aggregation", "evaluation")}
        return Progress(0, model, timing={**timing, "total_seconds": 0.0})

    def _round(self, before: Progress) -> Progress:
        import numpy as np

        from bflp.engine.client import NotFiniteError
        from bflp.engine.server import select_clients
        from bflp.runtime.checkpoint import Progress

        round_ = before.round + 1
        sizes = self.worker.partition.sizes
        clients = select_clients(self.job.seed, round_, len(sizes), self.job.settings["setup"]["fraction"])
        times = [time.perf_counter()]
        trained = self.executor.run(
            before.model, [("train", round_, client, float(sizes[client])) for client in clients]
        )
        times.append(time.perf_counter())
        try:
            model = self.aggregator.combine(np.stack([vector for vector, *_ in trained]), sizes[clients], round_)
        except NotFiniteError as error:
            raise pool.DivergedError(round_, None, str(error)) from None
        times.append(time.perf_counter())
        evaluation = self.job.settings["evaluation"]
        rounds = before.rounds
        if round_ % evaluation["every"] == 0 or round_ == self.job.settings["setup"]["rounds"]:
            rounds = [*rounds, {"round": round_, **self._evaluate(model, round_)}]
        times.append(time.perf_counter())
        timing = {
            key: [*before.timing[key], times[index + 1] - times[index]]
            for index, key in enumerate(("train_seconds", "aggregation_seconds", "evaluation_seconds"))
        }
        return Progress(round_, model, rounds, timing, before.resumed_at)

    def _evaluate(self, model: Tensor, round_: int) -> dict[str, float | None]:
        """Accuracy, ECE, NLL and spread of a model [D] on the whole test set."""
        from bflp.engine import metrics

        probabilities, _ = self._predictions("evaluate", model, round_, len(self.labels))
        bins = self.job.settings["evaluation"]["ece_bins"]
        log_variances = model[self.worker.layout.log_variances].numpy()
        result: dict[str, float | None] = {
            "accuracy": metrics.accuracy(probabilities, self.labels),
            "ece": metrics.expected_calibration_error(probabilities, self.labels, bins),
            "nll": metrics.negative_log_likelihood(probabilities, self.labels),
            "spread": metrics.spread(log_variances) if self.job.variational else None,
        }
        wrong = [name for name, value in result.items() if value is not None and not math.isfinite(value)]
        if wrong:
            raise pool.DivergedError(round_, None, f"evaluation: {', '.join(wrong)} not finite")
        return result

    def _predictions(self, method: str, model: Tensor, round_: int, images: int) -> tuple[Any, Any]:
        """Probabilities [N, L] and mean entropies [N] for all test images of the data set that `method` stands for."""
        import numpy as np

        from bflp.runtime.worker import chunks

        answers = self.executor.run(model, [(method, round_, chunk, 0.0) for chunk in chunks(images)])
        probabilities, entropies = zip(*answers, strict=True)
        return np.concatenate(probabilities), np.concatenate(entropies)

    def final(self) -> dict[str, Any]:
        """The parts of the result that describe the final model; all null for a cell that diverged."""
        progress = self.progress
        if progress.diverged is not None:
            return {"diverged": progress.diverged, "final": None, "reliability": None, "clients": None}
        from bflp.engine import evaluation as final

        # The same noise as in the last round's evaluation, so the same predictions.
        predictions = self._predictions("evaluate", progress.model, progress.round, len(self.labels))
        ood = None
        if self.worker.ood_images is not None:
            ood, _ = self._predictions("evaluate_ood", progress.model, progress.round, len(self.worker.ood_images))
        bins = self.job.settings["evaluation"]["ece_bins"]
        last = {key: value for key, value in progress.rounds[-1].items() if key != "round"}
        partition = self.worker.partition
        counts = final.label_counts(
            partition.indices, partition.offsets, self.worker.train_labels, self.worker.data.labels
        )
        return {"diverged": None, **final.describe(last, *predictions, self.labels, bins, ood, counts)}


@contextlib.contextmanager
def executor_for(job: Job, worker: Worker, processes: int) -> Iterator[pool.Executor]:
    """This process alone, or a pool."""
    if processes == 1:
        yield pool.SerialExecutor(worker)
    else:
        with pool.pool(job, processes) as executor:
            yield executor


def _write(
    job: Job,
    worker: Worker,
    progress: Progress,
    final: dict[str, Any],
    environment: dict[str, Any],
    startup: float,
    data: dict[str, str | None],
    result_file: Path,
    model_file: Path,
) -> None:
    from safetensors.torch import save

    from bflp.files import whole_file
    from bflp.results.file import write_result

    result = {
        "cell": job.cell,
        "settings": job.settings,
        "fingerprint": job.fingerprint,
        "data": data,
        "model_sha256": hashlib.sha256(progress.model.numpy().tobytes()).hexdigest(),
        "environment": {**environment, "resumed_at": progress.resumed_at},
        "rounds": progress.rounds,
        **final,
        "timing": {**progress.timing, "startup_seconds": startup},
    }
    tensors = {name: tensor.contiguous() for name, tensor in worker.layout.views(progress.model).items()}
    with whole_file(model_file) as temporary:
        # Not by safetensors' own writing, which hides the system's error and makes files that only their owner reads.
        temporary.write_bytes(save(tensors, metadata={"cell": canonical_json(job.cell)}))
    write_result(result_file, result)


def _environment(job: Job, processes: int) -> dict[str, Any]:
    import numpy as np
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": job.device,
        "gpu": torch.cuda.get_device_name(job.device) if job.device.startswith("cuda") else None,
        "processes": processes,
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
