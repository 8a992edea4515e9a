"""Each cell has a place on a GPU of its own; with pretended GPUs and real processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bflp.errors import UserError
from bflp.runtime import device, progress
from bflp.runtime.device import Gpu, claimed_device, visible_gpus

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from pathlib import Path
from bflp.runtime import device
from bflp.runtime.device import Gpu, claimed_device
device.SECONDS_BETWEEN_TRIES = 0.05
gpus = [Gpu(f"cuda:{index}", identity) for index, identity in enumerate(sys.argv[3].split(","))]
with claimed_device("auto", int(sys.argv[2]), lambda: gpus, Path(sys.argv[1])) as (name, why):
    print(name, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process that holds a place on a GPU until its stdin closes, and says on which."""
    started: list[subprocess.Popen[str]] = []

    def start(gpus: str, cells_per_gpu: int = 1) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), str(cells_per_gpu), gpus],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def waits(process: subprocess.Popen[str]) -> str:
    """The message of a process that waits; it must have no place."""
    assert process.stderr is not None and process.stdout is not None
    message = process.stderr.readline()
    assert not select.select([process.stdout], [], [], 0.3)[0]
    return message


def test_two_cells_have_a_card_each(start: Callable[..., subprocess.Popen[str]]) -> None:
    assert {says(start("A,B")), says(start("A,B"))} == {"cuda:0", "cuda:1"}


def test_started_at_once_each_has_its_own(start: Callable[..., subprocess.Popen[str]]) -> None:
    processes = [start("A,B,C,D") for _ in range(4)]
    assert {says(process) for process in processes} == {"cuda:0", "cuda:1", "cuda:2", "cuda:3"}


def test_a_third_cell_waits_for_a_card(start: Callable[..., subprocess.Popen[str]]) -> None:
    first, second = start("A,B"), start("A,B")
    assert {says(first), says(second)} == {"cuda:0", "cuda:1"}
    third = start("A,B")
    message = waits(third)
    assert "waiting for a GPU: all places on 2 are taken" in message
    assert str(first.pid) in message and str(second.pid) in message
    first.communicate()
    assert says(third) in ("cuda:0", "cuda:1")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_cell_leaves_its_card_free(start: Callable[..., subprocess.Popen[str]], number: int) -> None:
    first = start("A")
    assert says(first) == "cuda:0"
    second = start("A")
    waits(second)
    first.send_signal(number)
    assert says(second) == "cuda:0"


def test_several_cells_share_a_card_and_spread_out(start: Callable[..., subprocess.Popen[str]]) -> None:
    processes = [start("A,B", 2) for _ in range(2)]
    assert {says(process) for process in processes} == {"cuda:0", "cuda:1"}
    more = [start("A,B", 2) for _ in range(2)]
    assert {says(process) for process in more} == {"cuda:0", "cuda:1"}
    fifth = start("A,B", 2)
    waits(fifth)
    processes[0].communicate()
    assert says(fifth) in ("cuda:0", "cuda:1")


def test_cards_are_known_by_identity_not_by_number(start: Callable[..., subprocess.Popen[str]]) -> None:
    """CUDA_VISIBLE_DEVICES gives the same card another number in another process."""
    assert says(start("A,B")) == "cuda:0"
    # Sees B alone, as cuda:0: another card, so there is no wait.
    assert says(start("B")) == "cuda:0"
    waits(start("A"))


def test_the_cpu_needs_no_place(tmp_path: Path) -> None:
    def none() -> list[Gpu]:
        return []

    def asked() -> list[Gpu]:
        raise AssertionError("nobody is to ask for GPUs")

    with claimed_device("cpu", 1, asked, tmp_path) as (name, _):
        assert name == "cpu"
    with claimed_device("auto", 1, none, tmp_path) as (name, _):
        assert name == "cpu"
    with pytest.raises(UserError, match="no CUDA device here"), claimed_device("cuda", 1, none, tmp_path):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("drivers", "why"),
    [((), "there is no CUDA device here"), (("/",), "PyTorch as it is installed finds no CUDA device here")],
)
def test_a_cell_never_falls_back_to_the_cpu_without_a_word(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], drivers: Sequence[str], why: str
) -> None:
    """The first line of its log says where it runs and why, and so does what `bflp status` reads."""
    monkeypatch.setattr(device, "DRIVERS", drivers)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    job = tiny.job("FED")
    tiny.run(job, device="auto")
    assert capsys.readouterr().err.splitlines()[0] == f"{job}: on cpu ({why})"
    assert progress.read(tiny.files().progress)["device"] == f"cpu ({why})"


def test_no_torch_where_there_is_no_driver() -> None:
    if any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))):
        pytest.skip("there is a driver here")
    asked = "import sys; from bflp.runtime.device import visible_gpus"
    code = f"{asked}; assert not visible_gpus() and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True)


def test_the_places_are_the_same_for_all_of_a_persons_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = device._folder()
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert device._folder() == folder
    assert folder.stat().st_mode & 0o077 == 0


def test_visible_devices_are_what_torch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch reads CUDA_VISIBLE_DEVICES: with three of eight cards visible they count from 0, each with its identity."""
    import torch

    class Properties:
        def __init__(self, uuid: str) -> None:
            self.uuid = uuid

    uuids = ["uuid-5", "uuid-2", "uuid-7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties(uuids[index]))
    assert visible_gpus() == [Gpu(f"cuda:{index}", uuid) for index, uuid in enumerate(uuids)]
    # Slices of one card, which may all have the card's identity.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,2,MIG-b")
    assert [gpu.identity for gpu in visible_gpus()] == ["MIG-a", "uuid-2", "MIG-b"]
    # As older drivers name them; the identity becomes a file's name.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-a/1/0, MIG-b,2")
    assert [gpu.identity for gpu in visible_gpus()] == ["MIG-GPU-a-1-0", "MIG-b", uuids[2]]
