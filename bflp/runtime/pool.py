"""Who executes the tasks of a round: this process, or a pool of worker processes. The choice never changes a result.

Workers start once per job, forked from a server process that has imported torch already. A model is sent to each
worker once for all its tasks, as one flat vector; data are memory-mapped, so all processes share one copy. Tasks are
handed out one at a time, largest first, so that no worker idles for long; results are put back in order.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bflp.engine.errors import DivergedError, NotFiniteError
from bflp.engine.round import Executor
from bflp.engine.work import Answer, Broadcast, Evaluate, Task, TrainStack, Work
from bflp.errors import UserError
from bflp.runtime import memory, termination
from bflp.runtime.errors import HopelessError
from bflp.runtime.inputs import Assignment

PROJECT = Path(__file__).resolve().parents[2]
# A socket's path has at most 107 characters, and Python adds some 40 to the folder for temporary files.
LONGEST_FOLDER = 60


class WorkerFailedError(UserError):
    """A worker process died or raised."""


class SerialExecutor:
    """Runs the tasks here, one after the other."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def run(self, broadcast: Broadcast, tasks: Sequence[Task]) -> list[Any]:
        return [self._run(broadcast, task) for task in tasks]

    def _run(self, broadcast: Broadcast, task: Task) -> Any:
        try:
            return run_task(self.work, broadcast, task)
        except (UserError, DivergedError):
            raise
        except Exception:
            raise WorkerFailedError(f"raised in {task}:\n{traceback.format_exc()}") from None


class PoolExecutor:
    """Runs the tasks in worker processes. Use `executor` to make one. cost: of a task, which only orders them."""

    def __init__(
        self, processes: Sequence[Any], pipes: Sequence[connection.Connection], cost: Callable[[Task], float]
    ) -> None:
        self.processes, self.pipes, self.cost = processes, pipes, cost

    def run(self, broadcast: Broadcast, tasks: Sequence[Task]) -> list[Any]:
        for worker in range(len(self.pipes)):
            self._send(worker, _packed(broadcast), None)
        waiting = sorted(range(len(tasks)), key=lambda index: -self.cost(tasks[index]))[::-1]
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
        """A worker's next answer, which may be a DivergedError. Raises WorkerFailedError or HopelessError."""
        try:
            kind, content = self.pipes[worker].recv()
        except (EOFError, OSError):
            raise self._death(worker, task) from None
        if kind == "diverged":
            return DivergedError(*content)
        if kind == "hopeless":
            raise HopelessError(content)
        if kind == "raised":
            raise WorkerFailedError(f"a worker process raised in {_describe(task)}:\n{content}")
        return _unpacked(content)

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


@contextlib.contextmanager
def executor(assignment: Assignment, work: Work, processes: int) -> Iterator[Executor]:
    """This process alone, or a pool; its processes end with the context, or when this process dies."""
    if processes == 1:
        memory.keep_freed()
        yield SerialExecutor(work)
        return
    context = multiprocessing.get_context("forkserver")
    _start_server()
    workers: list[Any] = []
    pipes: list[connection.Connection] = []
    sizes = work.inputs.sizes
    try:
        for _ in range(processes):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_serve, args=(theirs, assignment), daemon=True)
            worker.start()
            theirs.close()
            workers.append(worker)
            pipes.append(ours)
        pool = PoolExecutor(workers, pipes, lambda task: _samples(task, sizes))
        for index in range(processes):
            pool.receive(index, None)
        yield pool
    finally:
        termination.ignore()
        for pipe in pipes:
            pipe.close()
        # Not of the list: a signal may have come between the start of a worker and its entry there.
        for child in multiprocessing.active_children():
            child.kill()
            child.join()


def _start_server() -> None:
    """Start the server process that workers are forked from."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["bflp.runtime.inputs"])
    # Started first, since that unblocks the signals.
    resource_tracker.ensure_running()
    # Ctrl-C and a cluster's notice reach the whole process group; this process alone decides what to do. The server and
    # its workers inherit the blocking.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, termination.SIGNALS)
    # The server does not take over sys.path, and where it cannot import a module it goes on without a word.
    path, folder = os.environ.get("PYTHONPATH"), tempfile.tempdir
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT), *([path] if path else [])])
    if len(tempfile.gettempdir()) > LONGEST_FOLDER:
        # Clusters like long ones; the server's socket lies there.
        tempfile.tempdir = "/tmp"
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        tempfile.tempdir = folder
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path


def _serve(pipe: connection.Connection, assignment: Assignment) -> None:
    """The main function of a worker process: a model, then tasks on it, until the pipe closes."""
    for number in termination.SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    memory.keep_freed()
    broadcast = Broadcast(torch.empty(0))
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        work = assignment.work()
        pipe.send(("done", "ready"))
        while True:
            message = pipe.recv()
            if not isinstance(message, Task):
                broadcast = _unpacked(message)
                continue
            try:
                answer: tuple[str, Any] = ("done", _packed(run_task(work, broadcast, message)))
            except DivergedError as error:
                answer = ("diverged", error.args)
            except HopelessError as error:
                answer = ("hopeless", str(error))
            except Exception:
                answer = ("raised", traceback.format_exc())
            pipe.send(answer)


def _packed(content: Any) -> Any:
    """Tensors as arrays, which go through a pipe without sharing memory."""
    return _each(content, lambda part: part.numpy() if isinstance(part, Tensor) else part)


def _unpacked(content: Any) -> Any:
    return _each(content, lambda part: torch.from_numpy(part) if isinstance(part, np.ndarray) else part)


def _each(content: Any, convert: Callable[[Any], Any]) -> Any:
    """What goes through a pipe, with each of its parts converted."""
    if isinstance(content, Broadcast):
        return Broadcast(_each(content.model, convert), _each(content.state, convert))
    if isinstance(content, Answer):
        return Answer(*(_each(part, convert) for part in content))
    if isinstance(content, list):
        return [_each(part, convert) for part in content]
    if isinstance(content, dict):
        return {name: _each(value, convert) for name, value in content.items()}
    return convert(content)


def run_task(work: Work, broadcast: Broadcast, task: Task) -> Any:
    """A client's answer, those of a stack, or a chunk's predictions. Raises DivergedError."""
    if isinstance(task, Evaluate):
        return work.evaluate(broadcast, task)
    if isinstance(task, TrainStack):
        return work.train_stack(broadcast, task)
    try:
        return work.train(broadcast, task)
    except NotFiniteError as error:
        raise DivergedError(task.round, task.client, str(error)) from None


def _samples(task: Task, sizes: NDArray[np.int64]) -> float:
    """What a task costs, roughly; evaluation is little."""
    if isinstance(task, Evaluate):
        return 0.0
    return float(sizes[list(task.clients)].sum() if isinstance(task, TrainStack) else sizes[task.client])


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _describe(task: Task | None) -> str:
    return "its start, or it was between two tasks" if task is None else str(task)
