"""Whether the demo's numbers are luck: how far accuracies fall in the last rounds, and how far seeds differ.

    make demo && python benchmarks/demo_calm.py
    export ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41
    snakemake --cores all --configfile examples/demo.yaml --config results_dir=results/other
    python benchmarks/demo_calm.py --other results/other

The second grid is trained as on a processor without AVX, whose sums are rounded otherwise.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from bflp import load_rounds

# Rounds whose falls count, and the most points of accuracy: of a fall, and of a standard error per partition.
LAST, FALL, ERRORS = 3, 3.0, {"iid": 1.5, "noniid": 3.0}
ROW = ["partition", "model", "aggregator"]


def largest_fall(accuracies: pd.Series) -> float:
    """The most that an accuracy lies below an earlier one, from the round before the last three on."""
    end = accuracies.iloc[-LAST - 1 :]
    return float((end.cummax() - end).max())


def rows(rounds: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard error over seeds of each row's final accuracy."""
    final = rounds[rounds["round"] == rounds["round"].max()]
    return final.groupby(ROW)["accuracy"].agg(["mean", "sem"])


def worst(values: pd.Series) -> str:
    """The largest value, and where it is."""
    where = values.index[int(values.argmax())]
    return f"{values.max():.2f} ({' '.join(map(str, where))})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results/demo"))
    parser.add_argument("--other", type=Path, help="results of the same grid by another kind of processor")
    arguments = parser.parse_args()
    rounds = load_rounds(arguments.results).sort_values("round")
    falls = rounds.groupby([*ROW, "seed"])["accuracy"].agg(largest_fall)
    found = rows(rounds)
    print(f"{len(falls)} cells; points of accuracy, the most:")
    print(f"fall in the last {LAST} rounds: {worst(falls)}; at most {FALL:g} wanted")
    calm = falls.max() <= FALL
    other = rows(load_rounds(arguments.other)) if arguments.other else None
    for partition, most in ERRORS.items():
        error = found["sem"].loc[[partition]]
        print(f"{partition}: standard error of a row {worst(error)}; at most {most:g} wanted")
        calm &= error.max() <= most
        if other is not None:
            apart = (found["mean"] - other["mean"]).abs().loc[[partition]]
            both = (found["sem"] ** 2 + other["sem"] ** 2).loc[[partition]] ** 0.5
            print(
                f"{partition}: processors differ by {worst(apart)}, {apart.mean():.2f} on average, where the standard "
                f"error of a difference is {both.mean():.2f} on average; at most {most:g} wanted"
            )
            calm &= apart.max() <= most
    sys.exit(not calm)


if __name__ == "__main__":
    main()
