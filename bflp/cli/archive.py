"""Put a finished grid into one zip file: what is uploaded with a paper.

Config, settings, results, tables, figures, code, versions and checksums, described as an RO-Crate. Without the data,
and without the models unless asked for. The same run gives the same bytes. `bflp verify FILE.zip` checks it anywhere.
"""

import argparse
from pathlib import Path

import yaml

from bflp.archive.contents import plain_name, write
from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import config_files, config_values, plan_from
from bflp.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.zip")
    parser.add_argument("--models", action="store_true", help="with the final models, too")
    add_settings_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    path: Path = arguments.file
    if path.suffix != ".zip":
        raise UserError(f"{path} must end with .zip")
    plan = plan_from(arguments)
    count = write(plan, _given(arguments), arguments.models, path)
    print(f"{path}: {len(plan.cells)} cells, {count} files, {path.stat().st_size / 1e6:.1f} MB")


def _given(arguments: argparse.Namespace) -> dict[str, str]:
    """The config files in their order, and last what the command line says, by their names in the archive."""
    texts = [(plain_name(file), file.read_text(encoding="utf-8")) for file in config_files(arguments.configfile)]
    if arguments.config:
        texts.append(("command-line.yaml", yaml.safe_dump(config_values(arguments.config))))
    return {f"config/{number}-{name}": text for number, (name, text) in enumerate(texts, 1)}
