"""Training one cell of the grid from its job to its result: the round loop with checkpoints.

Modules of this package are imported inside the functions where they would import torch: the server process of the
client pool is started first, and imports torch while this process does.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from bflp.errors import DataError, UserError
from bflp.federation import pool
from bflp.federation.job import Job
from bflp.files import canonical_json

if TYPE_CHECKING:
    from torch import Tensor

    from bflp.federation.checkpoint import Progress
    from bflp.federation.server import Aggregator
    from bflp.federation.worker import Worker


class Terminated(BaseException):
    """SIGTERM or Ctrl-C: save and end."""


def run_cell(
    job: Job,
    processes: int,
    result_file: Path,
    model_file: Path,
    checkpoint_folder: Path,
    pace: dict[str, float],
    check_code: Callable[[], None],
    on_divergence: str = "stop",
) -> None:
    """Train the cell and write its JSON result and final model.

    Goes on from the newest checkpoint in `checkpoint_folder`, if there is one of this very job. pace: the checkpoint
    settings (`rounds` and `seconds` between two). check_code: called before the result is written; raises UserError
    when the code is not what the job names. on_divergence: "stop" or "record". Raises UserError.
    """
    began = time.perf_counter()
    with _only_one(checkpoint_folder, str(job)), _termination():
        if processes > 1:
            pool.start_server()
        from bflp.federation.worker import Worker, chunks

        worker = Worker(job)
        data = _checked_inputs(job, worker)
        tasks = max(len(worker.partition.sizes), len(chunks(len(worker.data.test_labels))))
        with _executor(job, worker, min(processes, tasks)) as executor:
            loop = RoundLoop(job, worker, executor, checkpoint_folder, pace, data)
            startup = time.perf_counter() - began
            progress = loop.run(began, on_divergence)
            final = loop.final(progress)
        check_code()
        _write(job, worker, progress, final, processes, startup, data, result_file, model_file)
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
        from bflp.federation.checkpoint import Checkpoints
        from bflp.federation.server import Aggregator

        self.job, self.worker, self.executor, self.pace = job, worker, executor, pace
        self.aggregator: Aggregator = Aggregator(job, worker.layout)
        self.labels = worker.data.test_labels
        identity = [job.cell, job.settings, job.fingerprint, data]
        self.checkpoints = Checkpoints(checkpoint_folder, canonical_json(identity))

    def run(self, began: float, on_divergence: str) -> Progress:
        """All rounds that are left, or up to the one that diverged. `began`: the perf_counter of the job's start."""
        from bflp.progress import RoundProgress

        rounds = self.job.settings["setup"]["rounds"]
        progress = self._start()
        earlier = progress.timing["total_seconds"]
        saved_round, saved_time = progress.round, time.perf_counter()
        try:
            with RoundProgress(str(self.job), rounds, progress.round) as shown:
                while progress.round < rounds:
                    following = self._round(progress)
                    following.timing["total_seconds"] = earlier + time.perf_counter() - began
                    progress = following
                    evaluated = progress.rounds and progress.rounds[-1]["round"] == progress.round
                    shown.update(progress.round, progress.rounds[-1]["accuracy"] if evaluated else None)
                    now = time.perf_counter()
                    if (
                        progress.round < rounds
                        and progress.round - saved_round >= self.pace["rounds"]
                        and now - saved_time >= self.pace["seconds"]
                    ):
                        self.checkpoints.save(progress)
                        saved_round, saved_time = progress.round, now
        except pool.DivergedError as error:
            if on_divergence == "stop":
                raise
            print(f"{self.job}: recorded as diverged: {error}", file=sys.stderr)
            progress.diverged = error.as_dict()
        except Terminated as signal_:
            if progress.round > saved_round:
                self.checkpoints.save(progress)
            print(
                f"{self.job}: ended by {signal_} after round {progress.round}; run it again to go on",
                file=sys.stderr,
            )
            raise
        return progress

    def _start(self) -> Progress:
        from bflp.federation.checkpoint import Progress

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

        from bflp.federation.checkpoint import Progress
        from bflp.federation.server import select_clients

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
        except ValueError as error:
            raise pool.DivergedError(round_, None, f"aggregation: {error}") from None
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
        from bflp import metrics

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

        from bflp.federation.worker import chunks

        answers = self.executor.run(model, [(method, round_, chunk, 0.0) for chunk in chunks(images)])
        probabilities, entropies = zip(*answers, strict=True)
        return np.concatenate(probabilities), np.concatenate(entropies)

    def final(self, progress: Progress) -> dict[str, Any]:
        """The parts of the result that describe the final model; all null for a cell that diverged."""
        if progress.diverged is not None:
            return {"diverged": progress.diverged, "final": None, "reliability": None, "clients": None}
        from bflp.federation import final

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


def _checked_inputs(job: Job, worker: Worker) -> dict[str, str | None]:
    """Check data and partition against the job; return the content hashes of all that the cell reads."""
    from bflp.datasets import arrays
    from bflp.partition import files

    data_hash = worker.data.content_hash()
    if data_hash != arrays.read_summary(job.data_file)["sha256"]:
        raise DataError(f"{job.data_file} was changed after it was prepared: delete it and prepare the data set again")
    expected = {"dataset": job.cell["dataset"], "clients": job.cell["clients"], "seed": job.seed}
    if worker.ood_images is not None and worker.ood_images.shape[1:] != worker.data.train_images.shape[1:]:
        shapes = f"{worker.ood_images.shape[1:]}, not {worker.data.train_images.shape[1:]}"
        raise DataError(f"evaluation.out_of_distribution: its images have shape {shapes} as those of the data set")
    expected |= {"name": job.cell["partition"], "settings": job.settings["partition"]}
    files.check(worker.partition, job.partition_file, expected, data_hash, len(worker.data.train_labels))
    return {
        "dataset": data_hash,
        "out_of_distribution": arrays.open_prepared(job.ood_file).content_hash() if job.ood_file else None,
        "partition": worker.partition.content_hash(),
    }


@contextlib.contextmanager
def _executor(job: Job, worker: Worker, processes: int) -> Iterator[pool.Executor]:
    if processes == 1:
        yield pool.SerialExecutor(worker)
    else:
        with pool.pool(job, processes) as executor:
            yield executor


@contextlib.contextmanager
def _termination() -> Iterator[None]:
    """Turn the first SIGTERM or Ctrl-C into Terminated, ignore those that follow, and exit as the signal would."""

    def terminate(number: int, frame: FrameType | None) -> None:
        for each in previous:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(signal.Signals(number).name)

    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in previous:
        signal.signal(number, terminate)
    try:
        yield
    except Terminated as error:
        raise SystemExit(128 + signal.Signals[str(error)]) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _only_one(folder: Path, name: str) -> Iterator[None]:
    """Hold the cell's lock; the system frees it when the process dies, however it dies. Raises UserError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{name} is being trained by another process already: wait for it, or stop it") from None
        yield


def _write(
    job: Job,
    worker: Worker,
    progress: Progress,
    final: dict[str, Any],
    processes: int,
    startup: float,
    data: dict[str, str | None],
    result_file: Path,
    model_file: Path,
) -> None:
    from safetensors.torch import save_file

    from bflp.federation.result_file import write_result
    from bflp.files import whole_file

    result = {
        "cell": job.cell,
        "settings": job.settings,
        "fingerprint": job.fingerprint,
        "data": data,
        "environment": {**_environment(job, processes), "resumed_at": progress.resumed_at},
        "rounds": progress.rounds,
        **final,
        "timing": {**progress.timing, "startup_seconds": startup},
    }
    tensors = {name: tensor.contiguous() for name, tensor in worker.layout.views(progress.model).items()}
    with whole_file(model_file) as temporary:
        save_file(tensors, temporary, metadata={"cell": canonical_json(job.cell)})
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
