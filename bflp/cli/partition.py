"""Split a data set over clients.

Writes each client's sample indices (.npz) and label counts (.csv).
"""

import argparse
import json
from operator import itemgetter
from pathlib import Path

from bflp.datasets import prepared
from bflp.errors import UserError
from bflp.partition import files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--job", required=True, help="JSON: dataset, name, clients, seed, settings (of the partition), fingerprint"
    )
    parser.add_argument("--data", type=Path, required=True, help="prepared .npz of the data set")
    parser.add_argument("--output", type=Path, required=True, help="partition .npz to write; the .csv goes beside it")


def run(arguments: argparse.Namespace) -> None:
    make(arguments.job, arguments.data, arguments.output)


def make(job: str, data: Path, output: Path) -> None:
    """Write the partition that `job` (JSON) describes, and say so. Raises UserError."""
    try:
        described = json.loads(job)
        itemgetter("dataset", "name", "clients", "seed", "settings")(described)  # all that is read
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"malformed --job: {error}") from None
    dataset, data_hash = prepared.open_prepared(data), prepared.read_summary(data)["sha256"]
    partition = files.make(dataset.train_labels, described, data_hash, dataset.train_clients)
    files.save(partition, dataset.train_labels, output)
    print(f"{output}: {partition}")
