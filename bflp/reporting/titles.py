"""What tables, figures and the report call things. Imports nothing heavy: the Snakefile reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bflp.datasets.registry import title as dataset_title
from bflp.errors import ConfigError
from bflp.grid.cell import NO_AGGREGATOR
from bflp.settings.explain import nearest

if TYPE_CHECKING:
    from bflp.grid.plan import Plan

NOT_APPLICABLE = "N/A"
# Files among the tables that only some targets make.
ON_DEMAND = ("tables", "round_time", "statistics", "statistics_blocks", "comparison", "claims")
PARTITION_TITLES = {"iid": "IID", "noniid": "non-IID"}


def table_titles(plan: Plan) -> dict[str, str]:
    """The tables of a grid: name to title, in their order."""
    grid = plan.settings.grid
    results = {
        f"results{name}": f"Results, {clients_title(name, plan.settings.setups[name].clients)}" for name in grid.clients
    }
    posterior = any(plan.has_posterior(model) for model, _ in plan.shown_rows)
    spread = {"spread": "Spread of the final posteriors"} if posterior else {}
    accuracy = plan.settings.tables.target_accuracy
    target = {"target": f"Rounds and megabytes to {accuracy:g}% accuracy"} if accuracy is not None else {}
    chosen = {"chosen": "Chosen values"} if plan.choosing else {}
    return {**results, **target, **spread, **chosen, "datasets": "Data sets"}


def aggregator_title(name: str) -> str:
    """The name of a rule, or that there is none."""
    return NOT_APPLICABLE if name == NO_AGGREGATOR else name


def row_title(row: tuple[str, str]) -> str:
    """A row's name: the model, and the rule where there is one."""
    model, rule = row
    return model if rule == NO_AGGREGATOR else f"{model} {rule}"


def reference_row(wanted: str | None, rows: Sequence[tuple[str, str]]) -> int:
    """The index of the row that others are compared with. Raises ConfigError where there is none of this name."""
    names = [row_title(row) for row in rows]
    if wanted is None:
        return names.index("FEDAVG") if "FEDAVG" in names else 0
    if wanted not in names:
        what = f"there is no row {wanted!r} in the grid{nearest(wanted, names)} (rows: {', '.join(names)})"
        raise ConfigError(f"statistics.reference: {what}")
    return names.index(wanted)


def row_labels(row: tuple[str, str]) -> tuple[str, str]:
    """A row's labels in tables: model and rule."""
    return row[0], aggregator_title(row[1])


def partition_title(name: str) -> str:
    """The name of a partition."""
    return PARTITION_TITLES.get(name, name)


def clients_title(setup: str, number: int | None = None) -> str:
    """A set-up: "10 clients" where its name is a number, else its name with the number of clients, if that is known."""
    if setup.isdecimal():
        return f"{setup} client" if int(setup) == 1 else f"{setup} clients"
    return setup if number is None else f"{setup} ({clients_title(str(number))})"


def federation_title(partition: str, setup: str, number: int | None = None) -> str:
    """A way to split a data set over clients: the report's groups."""
    return f"{partition_title(partition)}, {clients_title(setup, number)}"


def block_title(dataset: str, partition: str, setup: str, number: int | None = None) -> str:
    """A block of cells that are compared with one another: the same data, split the same way."""
    return f"{dataset_title(dataset)}, {federation_title(partition, setup, number)}"
