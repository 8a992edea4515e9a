"""What the command-line programs share: how settings and data are found."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bflp.cli.rule_source import check_rules
from bflp.datasets import prepared as arrays
from bflp.errors import ConfigError, DataError
from bflp.grid.plan import Plan
from bflp.settings.schema import Settings, load, read_file


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """--configfile for people, --settings for the workflow."""
    parser.add_argument(
        "--configfile",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="config files that are laid over config.yaml, as with snakemake --configfile",
    )
    parser.add_argument("--settings", help=argparse.SUPPRESS)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings that the arguments name. Raises ConfigError."""
    if arguments.settings is not None:
        try:
            return Settings.parse(json.loads(arguments.settings))
        except ValueError as error:
            raise ConfigError(f"--settings is no JSON ({error})") from None
    return load_over_default(arguments.configfile)


def load_over_default(files: Sequence[Path]) -> Settings:
    """The settings of config.yaml with `files` laid over it, as snakemake reads them. Raises ConfigError."""
    default = Path("config.yaml")
    return load([default, *files] if default.exists() or not files else files)


def check_config_files(files: Iterable[str | Path]) -> None:
    """Raise ConfigError, naming file and line, where Snakemake would name neither or see nothing wrong."""
    for file in map(Path, files):
        if file.exists():
            read_file(file)


def plan_of(config: Mapping[str, Any]) -> Plan:
    """The plan of what Snakemake read from config files and command line. Raises UserError."""
    plan = Plan(Settings.parse(config))
    check_sources(plan)
    check_rules(plan)
    return plan


def check_sources(plan: Plan) -> None:
    """Check the `source:` files that are yet to be prepared, and that they have enough samples for the clients.

    Raises DataError. A file that is older than what was prepared from it was checked when that was done.
    """
    for dataset in plan.datasets():
        source = plan.settings.source(dataset)
        if source is None:
            continue
        prepared = arrays.summary_file(plan.data_file(dataset))
        if (
            not prepared.is_file()
            or not Path(source).is_file()
            or Path(source).stat().st_mtime > prepared.stat().st_mtime
        ):
            size = arrays.check_source(Path(source))
        else:
            size = arrays.read_summary(plan.data_file(dataset))["train_size"]
        if dataset in plan.settings.grid.datasets:
            try:
                plan.settings.check_size(dataset, size)
            except ValueError as error:
                raise DataError(f"{error} ({source})") from None
