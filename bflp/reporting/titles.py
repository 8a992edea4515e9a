"""What tables, figures and the report call things. Imports nothing heavy: the Snakefile reads it."""

from __future__ import annotations

from bflp.datasets.registry import title as dataset_title

__all__ = ["block_title", "clients_title", "dataset_title", "federation_title", "partition_title", "table_title"]

PARTITION_TITLES = {"iid": "IID", "noniid": "non-IID"}

_TABLE_TITLES = {
    "spread": "Spread of the final posteriors",
    "datasets": "Data sets",
    "round_time": "Time per round",
    "comparison": "Differences from the published numbers",
}


def table_title(name: str) -> str:
    """The name of a table."""
    return _TABLE_TITLES.get(name) or f"Results, {clients_title(int(name.removeprefix('results')))}"


def partition_title(name: str) -> str:
    """The name of a partition."""
    return PARTITION_TITLES.get(name, name)


def clients_title(clients: int) -> str:
    """A number of clients in words."""
    return f"{clients} client" if clients == 1 else f"{clients} clients"


def federation_title(partition: str, clients: int) -> str:
    """A way to split a data set over a number of clients: the report's groups."""
    return f"{partition_title(partition)}, {clients_title(clients)}"


def block_title(dataset: str, partition: str, clients: int) -> str:
    """A block of cells that are compared with one another: the same data, split the same way."""
    return f"{dataset_title(dataset)}, {federation_title(partition, clients)}"
