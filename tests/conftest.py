"""One thread per library, set before any is imported: sums must not depend on the machine's cores."""

import os
import signal
from collections.abc import Iterator

import pytest

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

pytest_plugins = ["tests.tiny_federation"]
# They start programs: Snakemake, SLURM, TeX, a browser, or hundreds that are killed.
SLOW = ("archive", "faults", "gpu", "workflow")
SIGNALS = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """A command that a test runs within its process ends with signals ignored, as programs do; later tests, and what
    they start, must not inherit that."""
    yield
    for number, handler in SIGNALS.items():
        signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, by folder, and let it start first: of several processes none is then left with it alone."""
    for item in items:
        if item.path.parent.name in SLOW:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
