"""How verbs find settings, plan, cells and data from their arguments."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bflp.datasets import prepared
from bflp.datasets.download import is_untouched
from bflp.datasets.source import check_source
from bflp.errors import ConfigError, DataError
from bflp.grid.cell import Cell
from bflp.grid.plan import Block, Plan
from bflp.provenance.state import describe_stale, finished_of, states
from bflp.provenance.state import listed as lines_of
from bflp.reporting.chosen_rounds import in_words, of_chosen_rounds
from bflp.reporting.titles import reference_row
from bflp.results.frame import Finished, frame, rounds_frame
from bflp.results.merged import read_merged
from bflp.results.sweeps import marked
from bflp.settings.explain import nearest
from bflp.settings.schema import Settings, load

if TYPE_CHECKING:
    import pandas as pd


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings that the arguments name. Raises ConfigError."""
    if arguments.settings is not None:
        try:
            return Settings.parse(json.loads(arguments.settings))
        except ValueError as error:
            raise ConfigError(f"--settings is not JSON ({error})") from None
    return load(config_files(arguments.configfile), config_values(arguments.config))


def config_files(given: Sequence[Path]) -> list[Path]:
    """The config files that are read, in the order in which they lie over each other. given: by --configfile."""
    default = Path("config.yaml")
    return [default, *given] if default.exists() or not given else list(given)


def plan_from(arguments: argparse.Namespace) -> Plan:
    """The plan of the settings that the arguments name. Raises ConfigError."""
    return _checked(Plan(settings_of(arguments)))


def _checked(plan: Plan) -> Plan:
    """The plan, if there is the row that its rows are to be compared with. Raises ConfigError."""
    reference_row(plan.settings.statistics.reference, plan.shown_rows)
    return plan


def config_values(entries: Sequence[str]) -> dict[Any, Any]:
    """What `--config key=value ...` says, with values read as Snakemake reads them. Raises ConfigError."""
    values = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"--config: {entry!r} must be KEY=VALUE, such as processes=2")
        values[key] = _value(value.strip("'\""))
    return values


def _value(text: str) -> Any:
    if text == "":
        return None
    for parse in (int, float, {"True": True, "False": False}.__getitem__, _texts):
        try:
            return parse(text)
        except (ValueError, KeyError, yaml.YAMLError):
            continue
    return text


def _texts(text: str) -> Any:
    return yaml.load(text, yaml.BaseLoader)


def cell_from(arguments: argparse.Namespace, plan: Plan) -> Cell:
    """The cell that --cell names. Raises ConfigError when the grid does not hold it."""
    cell = Cell.parse(arguments.cell)
    if cell not in plan.cells:
        files = ", ".join(map(str, arguments.configfile)) or "config.yaml"
        near = nearest(str(cell), map(str, plan.cells))
        raise ConfigError(f"the cell {cell} is not in the grid of {files}{near}")
    return cell


def blocks_from(arguments: argparse.Namespace, plan: Plan) -> dict[str, Block]:
    """The block that --block names, or all of the grid, by name. Raises ConfigError for a block that is not in it."""
    blocks = {"/".join(block): block for block in plan.blocks()}
    if arguments.block is None:
        return blocks
    if arguments.block not in blocks:
        raise ConfigError(f"the block {arguments.block} is not in the grid (known: {', '.join(blocks)})")
    return {arguments.block: blocks[arguments.block]}


def listed(items: Sequence[object], most: int | None) -> str:
    """A line for each item, indented; most: how many at most, or None."""
    lines = [f"  {item}\n" for item in items[:most]]
    more = f"  and {len(items) - len(lines)} more (--all lists them)\n" if len(items) > len(lines) else ""
    return "".join(lines) + more


def shown_frame(plan: Plan, partial: bool) -> pd.DataFrame:
    """The tidy results that tables and statistics show: of the rounds that `tables` chooses. Raises DataError.

    partial: of the cells that have run, by `finished_cells`; else of results.csv.
    """
    tables, finished = plan.settings.tables, finished_cells(plan) if partial else []
    final = marked(plan, frame(finished)) if partial else read_merged(plan)
    if not in_words(tables):
        return final
    rounds = rounds_frame(finished) if partial else read_merged(plan, plan.paths.merged_rounds)
    return of_chosen_rounds(final, rounds, tables)


def finished_cells(plan: Plan) -> list[Finished]:
    """The cells that have run; says on stderr what is stale, damaged or not evaluated."""
    found = [item for item in states(plan) if item.kind != "missing"]
    wrong = [item for item in found if item.kind in ("stale", "damaged")]
    if wrong:
        print(f"warning: {describe_stale(wrong)}", file=sys.stderr)
    unevaluated = [str(item.cell) for item in found if item.is_right and item.evaluation is None]
    if unevaluated:
        print(f"warning: not evaluated as wanted now (bflp evaluate):{lines_of(unevaluated)}", file=sys.stderr)
    return finished_of(found)


def plan_of(files: Iterable[Path], values: Mapping[str, Any]) -> Plan:
    """The plan of config files and of what --config says over them, for the Snakefile. Raises UserError."""
    plan = _checked(Plan(load(files, values)))
    check_sources(plan)
    return plan


def check_sources(plan: Plan) -> None:
    """Check the `source:` files that are yet to be prepared, that they have enough samples for the clients, and that
    their images fit the settings and each other.

    Raises UserError. A file that was not touched since it was prepared was checked when that was done.
    """
    shapes = plan.settings.built_in_shapes
    for dataset in plan.datasets():
        source = plan.settings.source(dataset)
        if source is None:
            continue
        file = plan.paths.data(dataset)
        if prepared.summary_file(file).is_file() and is_untouched(Path(source), file):
            found = prepared.read_summary(file)
        else:
            found = check_source(Path(source))
        shapes[dataset] = found["input_shape"]
        if dataset in plan.settings.grid.datasets:
            try:
                plan.settings.check_size(dataset, found["train_size"], found.get("clients"))
            except ValueError as error:
                raise DataError(f"{error} ({source})") from None
    check_shapes(plan.settings, shapes)


def check_shapes(settings: Settings, shapes: Mapping[str, Sequence[int]]) -> None:
    """Raise ConfigError where the shapes of data sets do not fit the settings or each other."""
    try:
        settings.check_shapes(shapes)
    except ValueError as error:
        raise ConfigError(str(error)) from None
