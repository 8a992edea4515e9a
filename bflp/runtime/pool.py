"""Who executes the tasks of a round: this process, or a pool of worker processes. The choice never changes a result.

Workers start once per job, forked from a server process that has imported torch already. A model is sent to each
worker once per round as one flat vector; data are memory-mapped, so all processes share one copy. Tasks are handed
out one at a time, largest first, so that no worker idles for long; results are put back in order.

This module imports torch only inside functions: the server process can then start while this one imports torch.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bflp.errors import UserError
from bflp.grid.job import Job
from bflp.runtime import termination

if TYPE_CHECKING:
    from torch import Tensor

    from bflp.runtime.worker import Worker

PROJECT = Path(__file__).resolve().parents[2]
# (method of Worker, round, client or chunk, cost): cost only orders the tasks.
Task = tuple[str, int, int, float]


class WorkerFailedError(UserError):
    """A worker process died or raised."""


class DivergedError(UserError):
    """A loss, a parameter or a metric is no finite number any more. client: None for the global model."""

    def __init__(self, round_: int, client: int | None, reason: str) -> None:
        who = "the global model" if client is None else f"client {client}"
        super().__init__(
            f"the training diverged in round {round_}, {who}: {reason}. Look at training.learning_rate, "
            "training.momentum and posterior.log_variance, or set on_divergence: record"
        )
        self.round, self.client, self.reason = round_, client, reason

    def as_dict(self) -> dict[str, Any]:
        """Round, client and reason, for the result."""
        return {"round": self.round, "client": self.client, "reason": self.reason}


class Executor(Protocol):
    """Runs tasks on a model vector; gives results in the order of the tasks."""

    def run(self, vector: Tensor, tasks: Sequence[Task]) -> list[Any]: ...


class SerialExecutor:
    """Runs the tasks here, one after the other."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def run(self, vector: Tensor, tasks: Sequence[Task]) -> list[Any]:
        return [self._run(vector, task) for task in tasks]

    def _run(self, vector: Tensor, task: Task) -> Any:
        try:
            return _run_task(self.worker, vector, task)
        except UserError:
            raise
        except Exception:
            raise WorkerFailedError(f"raised in {_describe(task)}:\n{traceback.format_exc()}") from None


class PoolExecutor:
    """Runs the tasks in worker processes. Use `pool` to make one."""

    def __init__(self, processes: Sequence[Any], pipes: Sequence[connection.Connection]) -> None:
        self.processes, self.pipes = processes, pipes

    def run(self, vector: Tensor, tasks: Sequence[Task]) -> list[Any]:
        for worker in range(len(self.pipes)):
            self._send(worker, vector.numpy(), None)
        waiting = sorted(range(len(tasks)), key=lambda index: -tasks[index][3])[::-1]
        results: list[Any] = [None] * len(tasks)
        running: dict[int, int] = {}
        for worker in range(len(self.pipes)):
            self._next(worker, tasks, waiting, running)
        while running:
            sentinels = {self.processes[worker].sentinel: worker for worker in running}
            readers = {self.pipes[worker]: worker for worker in running}
            ready = connection.wait([*readers, *sentinels])
            for worker in [readers[pipe] for pipe in ready if pipe in readers]:
                index = running.pop(worker)
                results[index] = self.receive(worker, tasks[index])
                self._next(worker, tasks, waiting, running)
            for worker in [sentinels[sentinel] for sentinel in ready if sentinel in sentinels]:
                if worker in running and not self.pipes[worker].poll():
                    raise self._death(worker, tasks[running[worker]])
        # Only now, and the first in order: which client is named must not depend on who was quickest.
        for result in results:
            if isinstance(result, DivergedError):
                raise result
        return results

    def _next(self, worker: int, tasks: Sequence[Task], waiting: list[int], running: dict[int, int]) -> None:
        if waiting:
            running[worker] = waiting.pop()
            task = tasks[running[worker]]
            self._send(worker, task, task)

    def _send(self, worker: int, message: Any, task: Task | None) -> None:
        try:
            self.pipes[worker].send(message)
        except OSError:
            raise self._death(worker, task) from None

    def receive(self, worker: int, task: Task | None) -> Any:
        """A worker's next answer, which may be a DivergedError. Raises WorkerFailedError."""
        try:
            kind, content = self.pipes[worker].recv()
        except (EOFError, OSError):
            raise self._death(worker, task) from None
        if kind == "diverged":
            return DivergedError(*content)
        if kind == "raised":
            raise WorkerFailedError(f"a worker process raised in {_describe(task)}:\n{content}")
        return content

    def _death(self, worker: int, task: Task | None) -> WorkerFailedError:
        process = self.processes[worker]
        process.join(5)
        code = process.exitcode
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            if code == -signal.SIGKILL:
                how += ", perhaps for lack of memory: use fewer processes or give the job more memory"
        else:
            how = f"ended with exit code {code}"
        return WorkerFailedError(f"the worker process {process.pid} {how}; it was working on {_describe(task)}")


def start_server() -> None:
    """Start the server process that workers are forked from; it imports torch while this process goes on."""
    from multiprocessing import forkserver, resource_tracker

    multiprocessing.get_context("forkserver").set_forkserver_preload(["bflp.runtime.worker"])
    # Started first, since that unblocks the signals.
    resource_tracker.ensure_running()
    # Ctrl-C and a cluster's notice reach the whole process group; this process alone decides what to do. The server and
    # its workers inherit the blocking.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, termination.SIGNALS)
    # The server does not take over sys.path, and where it can not import a module it goes on without a word.
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT), *([path] if path else [])])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path


@contextlib.contextmanager
def pool(job: Job, processes: int) -> Iterator[PoolExecutor]:
    """A pool of worker processes; they end with the context, or when this process dies."""
    context = multiprocessing.get_context("forkserver")
    start_server()
    workers: list[Any] = []
    pipes: list[connection.Connection] = []
    try:
        for _ in range(processes):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_serve, args=(theirs, job), daemon=True)
            worker.start()
            theirs.close()
            workers.append(worker)
            pipes.append(ours)
        executor = PoolExecutor(workers, pipes)
        for index in range(processes):
            executor.receive(index, None)
        yield executor
    finally:
        termination.ignore()
        for pipe in pipes:
            pipe.close()
        # Not of the list: a signal may have come between the start of a worker and its entry there.
        for child in multiprocessing.active_children():
            child.kill()
            child.join()


def _serve(pipe: connection.Connection, job: Job) -> None:
    """The main function of a worker process: a model, then tasks on it, until the pipe closes."""
    for number in termination.SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    import torch

    from bflp.runtime.worker import Worker

    vector = torch.empty(0)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        worker = Worker(job)
        pipe.send(("done", "ready"))
        while True:
            message = pipe.recv()
            if not isinstance(message, tuple):
                vector = torch.from_numpy(message)
                continue
            try:
                answer: tuple[str, Any] = ("done", _run_task(worker, vector, message))
            except DivergedError as error:
                answer = ("diverged", (error.round, error.client, error.reason))
            except Exception:
                answer = ("raised", traceback.format_exc())
            pipe.send(answer)


def _run_task(worker: Worker, vector: Tensor, task: Task) -> Any:
    from bflp.engine.client import NotFiniteError

    method, round_, item, _ = task
    if method != "train":
        return getattr(worker, method)(vector, round_, item)
    try:
        start = time.perf_counter()
        trained, loss = worker.train(vector, round_, item)
        return trained.numpy(), loss, time.perf_counter() - start
    except NotFiniteError as error:
        raise DivergedError(round_, item, str(error)) from None


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _describe(task: Task | None) -> str:
    if task is None:
        return "its start, or it was between two tasks"
    method, round_, item, _ = task
    return f"round {round_}, client {item}" if method == "train" else f"the evaluation of round {round_}"
