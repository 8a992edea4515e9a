"""Federated Bayesian deep learning experiments as a Snakemake workflow. A notebook uses `results.notebook`."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def __getattr__(name: str) -> Any:
    """What `results.notebook` exports, by name when it is asked for: `import bflp` is part of every cell's code."""
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is not None:
        raise AttributeError(name)
    return getattr(import_module("bflp.results.notebook"), name)
