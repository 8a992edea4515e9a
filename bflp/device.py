"""Which device a cell trains on."""

from __future__ import annotations

import os

from bflp.errors import UserError


def choose_device(wanted: str) -> str:
    """ "cpu" or "cuda", for a wish of "auto", "cpu" or "cuda". Raises UserError where cuda is wished and there is none.

    torch is imported only where a GPU may be used.
    """
    if wanted == "cpu" or (wanted == "auto" and not _may_have_gpu()):
        return "cpu"
    # Deterministic matrix products on CUDA need this before the first one.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise UserError("device: cuda is set, but there is no CUDA device here: use device: auto or cpu")
    return "cpu"


def _may_have_gpu() -> bool:
    """Whether the driver is there; much cheaper than asking torch."""
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")  # noqa: PTH110
