"""Federated algorithms: one file each, found by name as aggregation rules are. This module imports none of them.

A file holds any of the functions `local`, `report` and `server` (bflp.engine.local.Algorithm), a frozen dataclass
`Settings`, and, where they say something:
    KINDS                the kinds of posterior that it is defined for
    OPTIMISERS           the optimisers that it goes with
    FULL_PARTICIPATION   whether all clients must train in each round
    BROADCAST            the entries of its server's state that clients are sent, where these are not all
    SENDS_PARAMETERS     False where clients send their messages alone, and no parameters
    TRAINS_MODELS        False where the parameters that a client trains are no model by themselves
    SPARSE               True where zeros are left out of what clients send and are sent
    DEFAULT_AGGREGATORS  its rules where the method names none; they come before the grid's
    refuse               function of its settings and a data set's `training`: why they do not go together, or ""
"""

from __future__ import annotations

from pathlib import Path


def names() -> list[str]:
    """The algorithms in this folder, FedAvg first."""
    files = (path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    return sorted(files, key=lambda name: (name != "fedavg", name))
