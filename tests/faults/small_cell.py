"""A cell that trains in a second, in a folder of its own, and ways to run it: in a forked child or as a program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

from bflp.datasets.prepared import read_summary
from bflp.files import canonical_json
from bflp.grid.job import Job
from bflp.grid.plan import Plan
from bflp.runtime.kept import CheckpointRounds
from bflp.settings.schema import Settings

RUN = ROOT / "workflow" / "scripts" / "run.py"
ROUNDS = 8
CLIENTS = 4
# No end of a program may take longer: a hang is a loss.
PATIENCE = 120.0


@dataclass(frozen=True)
class End:
    """How a program ended: exit code (negative: the signal that killed it), what it said, and seconds it took."""

    code: int
    text: str
    seconds: float

    @property
    def one_clear_error(self) -> bool:
        """Whether it ended with one line for people, and no traceback."""
        errors = [line for line in self.text.splitlines() if line.startswith("error: ")]
        return self.code == 1 and len(errors) == 1 and "Traceback" not in self.text


class SmallCell:
    """One cell of a tiny data set below `folder`; its data and partition are made at once."""

    def __init__(self, folder: Path, rounds: int = ROUNDS, local_epochs: int = 1) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "source.npz"
        if not source.exists():
            _write_source(source)
        self.config: dict[str, Any] = {
            "grid": {
                "datasets": ["tiny"],
                "partitions": ["noniid"],
                "clients": [CLIENTS],
                "models": ["FVBWA"],
                "aggregators": ["PPA"],
                "seeds": [0],
            },
            "datasets": {"tiny": {"source": str(source)}},
            "partitions": {"noniid": {"strategy": "dirichlet", "alpha": 0.5, "min_samples": 4}},
            "setups": {CLIENTS: {"fraction": 0.75, "rounds": rounds}},
            "training": {"local_epochs": local_epochs, "batch_size": 20, "learning_rate": 0.05},
            "evaluation": {"every": 2, "ece_bins": 10, "monte_carlo_samples": 3},
            "checkpoint_seconds": 0,
            "processes": 1,
            "device": "cpu",
            "results_dir": str(folder / "results"),
            "data_dir": str(folder / "data"),
        }
        self.plan = Plan(Settings.parse(self.config))
        # The least time between two checkpoints; not among what its result depends on.
        self.checkpoint_seconds = 0.0
        self.cell, paths = self.plan.cells[0], self.plan.paths
        self.data, self.partition = paths.data("tiny"), self.plan.partition_file(self.cell)
        self.result, self.model, self.evaluation = (
            made(self.cell) for made in (paths.result, paths.model, paths.evaluation)
        )
        self.progress, self.kept = paths.progress(self.cell), paths.kept
        self.lock = self.progress.with_suffix(".lock")

    def prepare_arguments(self) -> list[str]:
        return ["tiny", "--settings", self.plan.settings.canonical()]

    def partition_arguments(self) -> list[str]:
        job = self.plan.partition_job_of(self.cell)
        return ["--job", job, "--data", str(self.data), "--output", str(self.partition)]

    def settings_arguments(self) -> list[str]:
        """Of evaluate and merge."""
        return ["--settings", self.plan.settings.canonical()]

    def train_arguments(self, processes: int = 1) -> list[str]:
        named = {
            "job": self.plan.job(self.cell),
            "evaluation": self.plan.evaluation_text(self.cell),
            "processes": processes,
            "device": "cpu",
            "data": self.data,
            "partition": self.partition,
            "results": self.plan.results,
            "checkpoint-seconds": self.checkpoint_seconds,
        }
        return [text for name, value in named.items() for text in (f"--{name}", str(value))]

    def make_inputs(self) -> None:
        for script, arguments in (("prepare", self.prepare_arguments()), ("partition", self.partition_arguments())):
            end = forked_main(script, arguments)
            assert end.code == 0, end.text

    def train(self, before: Callable[[], None] | None = None, kill_after: float | None = None, number: int = 9) -> End:
        """Train in a forked child; `before` runs in it first. kill_after: seconds until signal `number` is sent."""

        def body() -> None:
            if before is not None:
                before()
            run_main("train", self.train_arguments())

        return forked(body, kill_after, number)

    def run(self, script: str, arguments: list[str]) -> End:
        """Run a program of the workflow."""
        begin = time.monotonic()
        command = [sys.executable, str(RUN), script, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return End(done.returncode, done.stdout + done.stderr, time.monotonic() - begin)

    def start(self, processes: int) -> subprocess.Popen[str]:
        """The training program as the workflow starts it, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, str(RUN), "train", *self.train_arguments(processes)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def outcome(self) -> tuple[str | bytes, ...]:
        """What must be the same in every run, of each file of `made`."""
        return tuple(map(same, self.made))

    def environment(self) -> dict[str, Any]:
        environment: dict[str, Any] = json.loads(self.result.read_text(encoding="utf-8"))["environment"]
        return environment

    @property
    def made(self) -> tuple[Path, Path, Path]:
        """What the workflow knows as the cell's."""
        return self.result, self.evaluation, self.model

    def identity(self) -> str:
        """What the cell's files in `kept` are called."""
        return Job.parse(self.plan.job(self.cell)).identity(read_summary(self.data)["sha256"])

    def checkpoint_round(self) -> int:
        """The round of the cell's checkpoint; 0: none."""
        return CheckpointRounds(self.kept).of(self.identity())

    def clear(self) -> None:
        """Remove all that runs have made of the cell."""
        for path in self.made:
            path.unlink(missing_ok=True)
        for folder in (self.kept, self.progress.parent):
            shutil.rmtree(folder, ignore_errors=True)

    def leftovers(self) -> list[Path]:
        """Temporary files anywhere below the folder."""
        return sorted(self.folder.rglob("*.tmp"))


def forked(body: Callable[[], None], kill_after: float | None = None, number: int = signal.SIGKILL) -> End:
    """Run `body` in a forked child, as a program that has imported everything already."""
    sys.stdout.flush()
    sys.stderr.flush()
    start = time.monotonic()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _be_program(body, write)
    os.close(write)
    os.set_blocking(read, False)
    pieces, sent, status = [], False, None
    while True:
        ended, code = os.waitpid(child, os.WNOHANG)
        status = code if ended else None
        pieces.append(_read(read))
        past = time.monotonic() - start
        if status is not None:
            break
        if not sent and kill_after is not None and past >= kill_after:
            os.kill(child, number)
            sent = True
        if past > PATIENCE and b"\nit hung\n" not in pieces:
            os.kill(child, signal.SIGKILL)
            pieces.append(b"\nit hung\n")
        time.sleep(0.001)
    pieces.append(_read(read))
    os.close(read)
    text = b"".join(pieces).decode(errors="replace")
    return End(os.waitstatus_to_exitcode(status), text, time.monotonic() - start)


def _be_program(body: Callable[[], None], output: int) -> None:
    code = 0
    # Until the program's own handlers are set, Ctrl-C ends it as if Python had not begun yet.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        body()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _read(pipe: int) -> bytes:
    pieces = []
    while True:
        try:
            piece = os.read(pipe, 65536)
        except BlockingIOError:
            break
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def run_main(verb: str, arguments: list[str]) -> None:
    """What `bflp VERB ...` runs."""
    from bflp.cli import main

    main([verb, *arguments])


def forked_main(verb: str, arguments: list[str]) -> End:
    """As `forked`, of what `bflp VERB ...` runs."""
    return forked(lambda: run_main(verb, arguments))


def warm_up() -> None:
    """Import what the programs import, once for all forked children."""
    import bflp.runtime.cell  # noqa: F401


def same(file: Path) -> str | bytes:
    """What must be the same in every run: a model's bytes, JSON without environment and timing. Raises ValueError."""
    if file.suffix != ".json":
        return file.read_bytes()
    content = json.loads(file.read_text(encoding="utf-8"))
    return canonical_json({key: value for key, value in content.items() if key not in ("environment", "timing")})


def _write_source(path: Path) -> None:
    """240 training and 100 test images of 16 x 16 pixels, whose brightness tells the label of four."""
    generator = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for split, size in (("train", 240), ("test", 100)):
        labels = generator.permutation(np.arange(size) % 4)
        images = generator.normal(60 + 40 * labels[:, None, None], 40, (size, 16, 16))
        arrays[f"{split}_images"] = np.clip(images, 0, 255).astype(np.uint8)
        arrays[f"{split}_labels"] = labels
    np.savez(path, **arrays)
