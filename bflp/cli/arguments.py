"""Arguments that verbs share. Imports nothing that is slow: each cell of the workflow starts with this."""

import argparse
from pathlib import Path

CELL = "DATASET/PARTITION/CLIENTS/MODEL/AGGREGATOR/seedN"
BLOCK = "DATASET/PARTITION/CLIENTS"


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """--configfile and --config for people, --settings for the workflow."""
    parser.add_argument(
        "--configfile",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="config files that are laid over config.yaml, as with snakemake --configfile",
    )
    parser.add_argument(
        "--config",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="settings that are laid over the config files, as with snakemake --config",
    )
    parser.add_argument("--settings", help=argparse.SUPPRESS)
