"""Which device a cell trains on: the CPU, or a place on a GPU that no other cell has at the same time.

A GPU has as many places as cells may share it. A place is a file in a folder that all programs of one user on this
machine know, and whoever holds an advisory lock on it has the place. The system frees it when the process ends, however
it ends. CUDA_VISIBLE_DEVICES, as people and clusters set it, says which GPUs there are.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from bflp.errors import UserError
from bflp.runtime.lock import holder, take

SECONDS_BETWEEN_TRIES = 1.0
SECONDS_BETWEEN_MESSAGES = 300.0


# Much cheaper to look for than asking torch.
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True)
class Gpu:
    """name: what torch calls it in this process, as "cuda:1"; identity: the same text in every process."""

    name: str
    identity: str


def visible_gpus() -> list[Gpu]:
    """The GPUs that this process can use. torch is imported only where there may be one."""
    if not any(map(os.path.exists, DRIVERS)):
        return []
    # Deterministic matrix products on CUDA need this before the first one.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    if not torch.cuda.is_available():
        return []
    # Not the number: on clusters and with CUDA_VISIBLE_DEVICES each process counts from 0.
    identities = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
    for index, listed in enumerate(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[: len(identities)]):
        if listed.strip().startswith("MIG-"):
            identities[index] = listed.strip().replace("/", "-")  # a part of a file's name
    return [Gpu(f"cuda:{index}", identity) for index, identity in enumerate(identities)]


@contextlib.contextmanager
def claimed_device(
    wanted: str, cells_per_gpu: int = 1, gpus: Callable[[], Sequence[Gpu]] = visible_gpus, folder: Path | None = None
) -> Iterator[tuple[str, str]]:
    """Give ("cpu" or "cuda:N", why) while holding a place on that GPU; wait where all places are taken.

    wanted: "cpu"; "auto", a GPU if there is one; or "cuda", which raises UserError where there is none. folder: where
    the places are, by default one of this user on this machine.
    """
    if wanted == "cpu":
        yield "cpu", "device: cpu is set"
        return
    found = list(gpus())
    if not found:
        driver = any(map(os.path.exists, DRIVERS))
        # As with CPU=1, or a driver that is too old.
        none = "PyTorch as it is installed finds no CUDA device here" if driver else "there is no CUDA device here"
        if wanted == "cuda":
            raise UserError(f"device: cuda is set, but {none}: use device: auto or cpu")
        yield "cpu", none
        return
    folder = folder or _folder()
    # The first place on each GPU before the second on any: cells spread out.
    places = [(gpu, folder / f"{gpu.identity}.{place}") for place in range(cells_per_gpu) for gpu in found]
    name, file = _wait_for_place(places)
    with file:
        yield name, f"device: {wanted} is set"


def _wait_for_place(places: Sequence[tuple[Gpu, Path]]) -> tuple[str, TextIO]:
    said_at = -SECONDS_BETWEEN_MESSAGES
    while True:
        for gpu, path in places:
            file = take(path)
            if file is not None:
                return gpu.name, file
        if time.monotonic() - said_at >= SECONDS_BETWEEN_MESSAGES:
            said_at = time.monotonic()
            holders = ", ".join(sorted({holder(path) for _, path in places}))
            gpus = len({gpu.identity for gpu, _ in places})
            print(
                f"{time.strftime('%H:%M:%S')} waiting for a GPU: all places on {gpus} are taken, by {holders}",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(SECONDS_BETWEEN_TRIES)


def _folder() -> Path:
    # Not TMPDIR, which people and clusters set for each job: all programs must find the same folder.
    base = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
    folder = base / f"bflp-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise UserError(f"{folder} belongs to someone else: it must be yours, for it says which GPUs are taken")
    return folder
