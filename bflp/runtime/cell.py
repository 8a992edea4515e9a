"""Training one cell to its result: the engine's rounds, with checkpoints, progress and signals around them."""

from __future__ import annotations

import contextlib
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from bflp.engine.errors import DivergedError
from bflp.engine.inputs import EVALUATION_CHUNK
from bflp.engine.round import Executor, Federation
from bflp.errors import DataError
from bflp.files import canonical_json, sha256_of, whole_file
from bflp.grid.coverage import check_code
from bflp.grid.job import Job
from bflp.networks import NetworkError
from bflp.networks.trial import try_out
from bflp.results.file import write
from bflp.results.result import (
    CellNames,
    DataHashes,
    Diverged,
    Environment,
    NetworkRecord,
    Result,
    Round,
    Timing,
    Traffic,
)
from bflp.runtime import evaluate, inputs, termination
from bflp.runtime.checkpoint import Checkpoints, Progress
from bflp.runtime.clients import Recording, load_clients, save_clients
from bflp.runtime.cores import available
from bflp.runtime.errors import HopelessError
from bflp.runtime.inputs import Assignment
from bflp.runtime.kept import SUFFIXES, link
from bflp.runtime.options import CellFiles, Options
from bflp.runtime.pool import WorkerFailedError, executor
from bflp.runtime.progress import RoundProgress
from bflp.runtime.rule import checked_rule
from bflp.runtime.states import ClientStates, digest

# The share of the time that checkpoints may cost.
MOST_COST = 0.01


def run(assignment: Assignment, files: CellFiles, options: Options, identity: str, device: str) -> None:
    """Train the cell, going on from its checkpoint; write result, model and evaluation. device: what status says of it.

    Raises UserError; and Terminated, having saved a checkpoint, where the program handles signals.
    """
    began = time.perf_counter()
    job = assignment.job
    code = check_code(job)
    data = inputs.checked(replace(assignment, ood_file=None))
    try:
        work = assignment.work()
        try_out(work.network, job.settings.get("network", {}).get("file", "the network"))
    except NetworkError as error:
        raise HopelessError(str(error)) from None
    settings, rule = assignment.settings(), checked_rule(assignment)
    if rule is not None:
        rule.try_out(settings.active, settings.weights == "data")
    federation = Federation(work, options.ece_bins, rule)
    workers = min(options.processes, max(len(federation.sizes), -(-len(work.inputs.test_labels) // EVALUATION_CHUNK)))
    checkpoints = Checkpoints(files.kept, identity)
    # Kept under the identity at once, and beside the model at the end: a checkpoint after the last round counts on it.
    clients_file = files.kept / f"{identity}{SUFFIXES['clients']}" if files.clients is not None else None
    with executor(assignment, work, workers) as pool:
        loop = _Loop(job, federation, pool, checkpoints, assignment.states(), options, clients_file)
        startup = time.perf_counter() - began
        shown = RoundProgress(
            str(job), loop.rounds, loop.progress.round, files.progress, device=device, identity=identity
        )
        diverged = None
        try:
            diverged = loop.run(shown, began, options.on_divergence)
            inputs.check_unchanged(replace(assignment, ood_file=None), data)
            model, wanted = loop.progress.server.model, options.evaluation
            kept_in = files.evaluation.with_suffix(".npz")
            clients = loop.clients(diverged is not None)
            evaluation = evaluate.evaluate(
                assignment, federation, pool, model, diverged is not None, wanted, kept_in, clients
            )
            check_code(job)
        except (termination.Terminated, WorkerFailedError) as error:
            loop.save_unsaved(error)
            raise
        # If it were interrupted from here on, the result would be there and the cell would still count as failed.
        termination.ignore()
        if diverged is None:
            loop.save()
        write_model(files.model, work.layout.views(loop.progress.server.model), job)
        environment = {**_environment(assignment, options), "code": code, "resumed_at": loop.progress.resumed_at}
        environment["curve_ece_bins"] = federation.bins
        environment["model_file"] = sha256_of(files.model)
        if files.clients is not None and clients_file is not None:
            link(clients_file, files.clients)
            environment["clients_file"] = sha256_of(files.clients)
        result = Result(
            cell=CellNames(**job.cell.as_dict()),
            settings=dict(job.settings),
            fingerprint=job.fingerprint,
            data=DataHashes(dataset=str(data["dataset"]), partition=str(data["partition"])),
            model_sha256=evaluate.model_hash(loop.progress.server.model),
            environment=Environment(**environment),
            diverged=diverged,
            rounds=[Round(**entry) for entry in loop.progress.rounds],
            timing=Timing(**loop.progress.timing, startup_seconds=startup),
            traffic=Traffic(**loop.progress.traffic),
            network=NetworkRecord(
                input_shape=list(work.network.input_shape),
                labels=work.network.labels,
                tensors={name: list(shape) for name, (_, shape) in work.layout.tensors.items()},
                gaussian=list(work.layout.gaussian),
            ),
        )
        write(files.result, result)
        if evaluation is not None:
            write(files.evaluation, evaluation)
        shown.end("diverged" if diverged else "done")


class _Loop:
    """The rounds that are left."""

    def __init__(
        self,
        job: Job,
        federation: Federation,
        pool: Executor,
        checkpoints: Checkpoints,
        states: ClientStates,
        options: Options,
        clients_file: Path | None,
    ) -> None:
        self.job, self.federation = job, federation
        self.recording, self.clients_file = Recording(pool), clients_file
        self.pool: Executor = pool if clients_file is None else self.recording
        self.checkpoints, self.states = checkpoints, states
        self.touched: set[int] = set()
        self.clients_at: dict[int, int] = {}  # client -> the round that its state is of
        self.rounds, self.least_seconds = federation.settings.rounds, options.checkpoint_seconds
        self.progress = self._start()
        self.saved_round, self.saved_time, self.save_seconds = self.progress.round, time.perf_counter(), 0.0

    def _start(self) -> Progress:
        again = self.clients_file is not None and not self._are_kept(self.clients_file)
        found = self.checkpoints.newest(self.rounds - 1 if again else None, self._has_states)
        if again and self.rounds in self.checkpoints.rounds_saved():
            print(
                f"{self.job}: trains again, since the models of its last round's clients were not kept", file=sys.stderr
            )
        if found is not None:
            print(f"{self.job}: goes on after round {found.round}", file=sys.stderr)
            found.resumed_at = [*found.resumed_at, found.round]
            # The curves go on as they began.
            self.federation.bins = found.ece_bins = found.ece_bins or self.federation.bins
            self.clients_at = self.states.newest(found.round)
            # A shorter run evaluated its last round in any case.
            found.rounds = [entry for entry in found.rounds if self.federation.is_evaluated(entry["round"])]
            return found
        timing: dict[str, Any] = {f"{part}_seconds": [] for part in ("train", "aggregation", "evaluation")}
        traffic: dict[str, list[int]] = {"up_bytes": [], "down_bytes": []}
        timing["total_seconds"] = 0.0
        return Progress(0, self.federation.initial(), timing=timing, traffic=traffic, ece_bins=self.federation.bins)

    def _has_states(self, progress: Progress) -> bool:
        """Whether what clients remembered at a checkpoint is all there."""
        if progress.states in (None, digest(self.states.newest(progress.round))):
            return True
        print(
            f"{self.job}: cannot go on after round {progress.round}: states of its clients are missing from "
            f"{self.states.folder}",
            file=sys.stderr,
        )
        return False

    def _are_kept(self, file: Path) -> bool:
        """Whether the last round's clients are there, of a run that was stopped after it."""
        with contextlib.suppress(DataError):
            return bool(load_clients(file, self.federation.layout.size))
        return False

    def run(self, shown: RoundProgress, began: float, on_divergence: str) -> Diverged | None:
        """All rounds that are left, or up to the one that diverged. `began`: the perf_counter of the job's start."""
        earlier = self.progress.timing["total_seconds"]
        try:
            with shown:
                if self.progress.round == self.rounds and not self._is_evaluated():
                    # A longer run was stopped here.
                    curves = self.federation.curves(self.progress.server.model, self.rounds, self.pool)
                    self.progress.rounds.append({"round": self.rounds, **curves})
                while self.progress.round < self.rounds:
                    progress = self._round(self.progress)
                    progress.timing["total_seconds"] = earlier + time.perf_counter() - began
                    self.progress = progress
                    shown.update(progress.round, progress.rounds[-1]["accuracy"] if self._is_evaluated() else None)
                    termination.check()
                    self._save_in_time()
        except DivergedError as error:
            text = in_words(error, self.job.settings)
            if on_divergence == "stop":
                raise HopelessError(text) from None
            print(f"{self.job}: recorded as diverged: {text}", file=sys.stderr)
            # Where a longer run was stopped here and only the curves are not finite, the round itself is done.
            for lists in (self.progress.timing, self.progress.traffic):
                lists.update({key: found[: error.round - 1] for key, found in lists.items() if isinstance(found, list)})
            self.progress.resumed_at[:] = [at for at in self.progress.resumed_at if at < error.round]
            return Diverged(round=error.round, client=error.client, reason=error.reason)
        return None

    def _is_evaluated(self) -> bool:
        """Whether the curves have the last round that is done."""
        return bool(self.progress.rounds) and bool(self.progress.rounds[-1]["round"] == self.progress.round)

    def _round(self, before: Progress) -> Progress:
        round_ = before.round + 1
        outcome = self.federation.round(before.server, round_, self.pool)
        # Before the checkpoint, which counts on them; those of a round that is done again are written again.
        clients = {client: state for client, state in outcome.clients.items() if state or client in self.clients_at}
        self.states.save(round_, clients)
        if self.clients_file is not None and round_ == self.rounds:
            save_clients(self.clients_file, self.recording.vectors, len(outcome.server.model))
        self.touched |= clients.keys()
        self.clients_at |= dict.fromkeys(clients, round_)
        rounds = [*before.rounds, *([{"round": round_, **outcome.curves}] if outcome.curves else [])]
        parts = zip(("train_seconds", "aggregation_seconds", "evaluation_seconds"), outcome.seconds, strict=True)
        timing = {key: [*before.timing[key], seconds] for key, seconds in parts}
        sent = zip(("up_bytes", "down_bytes"), outcome.traffic, strict=True)
        traffic = {key: [*before.traffic[key], bytes_] for key, bytes_ in sent}
        return Progress(round_, outcome.server, rounds, timing, before.resumed_at, traffic, before.ece_bins)

    def clients(self, diverged: bool) -> dict[int, Tensor] | None:
        """The parameters that the clients of the last round trained; None where they are not kept."""
        if self.clients_file is None:
            return None
        size = len(self.progress.server.model)
        if diverged:
            save_clients(self.clients_file, {}, size)
        return load_clients(self.clients_file, size)

    def _save_in_time(self) -> None:
        now = time.perf_counter()
        # On a slow disk less often than the setting says, unless that is 0.
        least = max(self.least_seconds, self.save_seconds / MOST_COST) if self.least_seconds else 0.0
        if self.progress.round < self.rounds and now - self.saved_time >= least:
            self.save()
            self.saved_round, self.saved_time = self.progress.round, time.perf_counter()
            self.save_seconds = self.saved_time - now

    def save(self) -> None:
        """Write the checkpoint, and drop what no checkpoint needs of the clients' states."""
        self.checkpoints.save(replace(self.progress, states=digest(self.clients_at)))
        if self.touched:
            self.states.forget(self.touched, self.checkpoints.rounds_saved())
            self.touched.clear()

    def save_unsaved(self, reason: BaseException) -> None:
        """Save the rounds that no checkpoint holds yet, since the job ends for `reason`."""
        if self.progress.round > self.saved_round:
            self.save()
        if isinstance(reason, termination.Terminated):
            print(
                f"{self.job}: ended by {reason} after round {self.progress.round}; run it again to go on",
                file=sys.stderr,
            )


def in_words(error: DivergedError, settings: Mapping[str, Any]) -> str:
    """In which round who diverged, and what of the cell's settings to look at."""
    who = "the global model" if error.client is None else f"client {error.client}"
    look = ["training.learning_rate", "training.momentum"]
    look += ["posterior.log_variance"] if "posterior" in settings else []
    look += [settings["algorithm"]["file"]] if "file" in settings.get("algorithm", {}) else []
    return (
        f"the training diverged in round {error.round}, {who}: {error.reason}. Look at {', '.join(look)}, "
        "or set on_divergence: record"
    )


def write_model(file: Path, tensors: dict[str, Tensor], job: Job) -> None:
    """Write the final global model, its tensors by name."""
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with whole_file(file) as temporary:
        # Not by safetensors' own function: it hides the system's error, and makes files that only their owner can read.
        temporary.write_bytes(save(whole, metadata={"cell": canonical_json(job.cell.as_dict())}))


def _environment(assignment: Assignment, options: Options) -> dict[str, Any]:
    device = assignment.device
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": available(),
        "device": device,
        "gpu": torch.cuda.get_device_name(device) if device.startswith("cuda") else None,
        "processes": options.processes,
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
