"""Split a data set over clients: write each client's sample indices (.npz) and label counts (.csv)."""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bflp.datasets import prepared as arrays
from bflp.partition import files
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--job",
        required=True,
        help="JSON: dataset, name, clients, seed, settings (of the partition), fingerprint",
    )
    parser.add_argument("--data", type=Path, required=True, help="prepared .npz of the data set")
    parser.add_argument("--output", type=Path, required=True, help="partition .npz to write; the .csv goes beside it")
    arguments = parser.parse_args()
    labels = np.array(arrays.open_prepared(arguments.data).train_labels)
    data_hash = arrays.read_summary(arguments.data)["sha256"]
    partition = files.make(labels, json.loads(arguments.job), data_hash)
    files.save(partition, labels, arguments.output)
    sizes = partition.sizes
    print(f"{arguments.output}: {len(sizes)} clients with {sizes.min()} to {sizes.max()} samples")


if __name__ == "__main__":
    run_script(main)
