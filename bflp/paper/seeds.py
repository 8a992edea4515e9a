"""What the seeds of the kept results say: how far they scatter, and what of a seed it is.

A seed draws the partition, the initial weights, the order of samples and the noise. Tables of the page, in Markdown.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pandas as pd

from bflp.engine.metrics.registry import METRICS
from bflp.files import canonical_json
from bflp.grid.cell import NO_AGGREGATOR, Cell
from bflp.paper import full_scale
from bflp.paper.comparison import MARKED_BEYOND, parts
from bflp.paper.full_scale import END, PLANNED, archive, as_number, as_table, compared, compared_of, end, kept
from bflp.paper.label_skew import effective_labels, label_counts
from bflp.paper.sources import KEYS, sources
from bflp.paper.two_samples import MOST_RUNS, Sample, difference, runs_needed
from bflp.reporting.titles import block_title
from bflp.results.frame import frame
from bflp.results.result import Result

SKEW_SEEDS = 200
# By weights that are equal where clients are: each is the other there.
TWINS = {"FED": "FEDAVG", "FEDAVG": "FED", "FVBA": "FVBWA", "FVBWA": "FVBA"}


def beside_twin(row: Mapping[Any, Any]) -> str:
    """That the number is within 3 deviations of the paper's other row of what is one model here; else nothing."""
    numbers = sources()["bflp"].numbers.set_index([*KEYS, "metric"])
    for twin in same_model(tuple(row[key] for key in KEYS))[1:]:
        theirs = numbers.loc[(*twin, row["metric"])]
        difference = (row["ours"] - theirs["published"]) / theirs["deviation"]
        if row["source"] == "bflp" and abs(difference) <= MARKED_BEYOND:
            return f"; {difference:+.1f} beside the paper's row of {twin[3]}, here the same model"
    return ""


def same_model(key: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """A published row, and the other one of the same model where all clients have equally many samples."""
    twin = TWINS.get(key[3]) if key[1] == "iid" else None
    return [key, *([(*key[:3], twin, key[4])] if twin else [])]


def on_another_partition(variant: str, row: Mapping[Any, Any]) -> str:
    """That the partition is the cause: a cell of the row is beyond 3 deviations, and none of those that are kept and
    differ from it by the draw of the partition alone is. Else nothing."""
    cells = {each[0]: each for each in archive(variant)}
    of_row = [cell for cell in cells if [*cell.block, *cell.row] == [row[key] for key in KEYS]]
    for own in of_row:
        drawn = {own: "alone"}
        _, settings = _drawn(own, cells[own][1])
        for cell, result, _ in cells.values():
            seed, same = _drawn(cell, result)
            if cell != own and replace(cell, partition=own.partition) == own and same == settings:
                drawn[cell] = f"on that of seed {seed}"
        there = {}
        for cell, where in drawn.items():
            found = compared_of([(own, *cells[cell][1:])])
            there[where] = found[(found["metric"] == row["metric"]) & (found["source"] == row["source"])].iloc[0]
        here = there.pop("alone")
        if here["marked"] and there and not any(each["marked"] for each in there.values()):
            others = ", ".join(f"at {each['difference']:+.1f} {where}" for where, each in there.items())
            return f"the partition: seed {own.seed} alone is at {here['difference']:+.1f}, and {others}"
    return ""


def _drawn(cell: Cell, result: Result) -> tuple[int, dict[str, Any]]:
    """The seed that a cell's partition is drawn with, and its settings without it."""
    partition = dict(result.settings["partition"])
    seed = partition.pop("seed", cell.seed)
    return seed, {**result.settings, "partition": partition}


@cache
def skew() -> str:
    """Of each data set with kept cells of ten non-IID clients how many labels a client has, seed by seed."""
    rows = []
    for block in dict.fromkeys(cell.block for _, cell, _ in kept() if cell.block[1:] == ("noniid", "10")):
        settings = next(result.settings for _, cell, result in kept() if cell.block == block)
        found = [
            effective_labels(label_counts(block[0], settings["setup"]["clients"], seed, settings["partition"]))
            for seed in range(SKEW_SEEDS)
        ]
        mean, deviation = statistics.mean(found), statistics.stdev(found)
        rows.append(
            [
                block_title(*block),
                f"{found[0]:.2f}",
                ", ".join(f"{value:.2f}" for value in found[1:5]),
                f"{mean:.2f} ± {deviation:.2f}",
                f"{sum(value <= found[0] for value in found)} of {SKEW_SEEDS}",
            ]
        )
    headers = ["block", "seed 0", "seeds 1 to 4", f"{SKEW_SEEDS} seeds, ± standard deviation", "as few as seed 0"]
    return as_table(headers, rows)


def draws(iid: bool) -> str:
    """Cells of rows that were run on the partition of another seed, too, with IID clients or others: what is drawn with
    which seed, and what comes of it."""
    groups: dict[tuple[Any, ...], list[tuple[int, Cell, Result]]] = {}
    for variant, cell, result in kept():
        seed, settings = _drawn(cell, result)
        group = variant, cell.dataset, cell.clients, *cell.row, canonical_json(settings)
        if (settings["partition"]["strategy"] == "iid") == iid:
            groups.setdefault(group, []).append((seed, cell, result))
    rows = []
    for found in (group for group in groups.values() if any(drawn != cell.seed for drawn, cell, _ in group)):
        for drawn, cell, result in sorted(found, key=lambda each: (each[0], each[1].seed)):
            settings, row = result.settings, [f"`{cell}`", drawn, cell.seed, *end(result)]
            if not iid:
                counts = label_counts(cell.dataset, settings["setup"]["clients"], drawn, settings["partition"])
                row += [as_number(result.rounds[4].accuracy), f"{effective_labels(counts):.2f}"]
            rows.append(row)
    headers = ["cell", "seed of the partition", "of all else", *END, *([] if iid else ["round 5", "effective labels"])]
    return as_table(headers, rows) if rows else "None."


def initial_weights() -> str:
    """The first rounds of cells that began with the initial weights of another seed, as benchmarks/initial_weights.py
    printed them, beside those that began with their own."""
    others = pd.read_csv(
        full_scale.FOLDER / "reference" / "initial_weights.csv", names=["cell", "weights", "round", "accuracy"]
    )
    rounds = range(1, others["round"].max() + 1)
    results = {str(cell): (cell, result) for cell, result, _ in archive("reference")}
    rows = []
    for name in others["cell"].unique():
        cell, result = results[name]
        own = [entry.accuracy for entry in result.rounds][: len(rounds)]
        drawn = others[others["cell"] == name].groupby("weights")["accuracy"]
        found = {cell.seed: own, **{seed: list(accuracies) for seed, accuracies in drawn}}
        rows += [[seed, cell.seed, *map(as_number, accuracies)] for seed, accuracies in found.items()]
    headers = ["initial weights of seed", "all else of seed", *(f"round {round_}" for round_ in rounds)]
    return as_table(headers, sorted(rows, key=lambda row: row[:2]))


def seeds() -> str:
    """Rows of a variant with several seeds, against the published runs of each row of the same model. Not where an
    error is printed as 0.00, which says too little of the deviation."""
    source = sources()["bflp"]
    rows = []
    known = set(source.numbers[KEYS].itertuples(index=False, name=None))
    of_variants = ((variant, *item) for variant in PLANNED for item in parts(frame(archive(variant)), KEYS))
    for variant, key, runs in of_variants:
        if len(runs) < 2 or key not in known:
            continue
        for metric, row in ((metric, row) for metric in ("accuracy", "ece", "nll") for row in same_model(key)):
            number = source.numbers.query(f"metric == '{metric}'").set_index(KEYS).loc[row]
            if number["error"] == 0:
                continue
            theirs = Sample(number["published"], number["deviation"], source.about.seeds)
            values = runs[metric].astype(float)
            ours = Sample(values.mean(), values.std(), len(values))
            apart = difference(ours, theirs)
            needed = runs_needed(apart.value, math.sqrt((ours.deviation**2 + theirs.deviation**2) / 2))
            digits = 3 if metric == "nll" else 2
            rows.append(
                [
                    variant,
                    f"{key[3]} {key[4]}, {block_title(*key[:3])}",
                    METRICS[metric].title,
                    row[3],
                    *(f"{it.mean:.{digits}f} ± {it.half_interval:.{digits}f} ({it.runs})" for it in (ours, theirs)),
                    f"{apart.value:+.{digits}f} ± {apart.half_interval:.{digits}f}",
                    f"{apart.p:.2f}",
                    f"{apart.detectable:.{digits}f}",
                    needed or f"over {MOST_RUNS}",
                ]
            )
    headers = ["variant", "row", "number", "beside", "ours (runs)", "published (runs)", "difference", "p"]
    return as_table([*headers, "detectable", "runs needed"], rows)


def below() -> str:
    """How many accuracies lie below the published mean, with ten IID clients on Fashion-MNIST."""
    found = compared("reference").query("metric == 'accuracy' and source == 'bflp'")
    found = found.query("dataset == 'fmnist' and partition == 'iid' and clients == '10'")
    below, without = found["difference"] < 0, found["aggregator"] == NO_AGGREGATOR
    variational = f"{(below & ~without).sum()} of {(~without).sum()} variational accuracies"
    return f"{variational} and {(below & without).sum()} of {without.sum()} deterministic ones"
