"""docs/reproduction.md, made from the kept results below docs/reproduction and the text of its template.

In the template `{{cells}}` becomes the list of kept cells, `{{missing}}` that of the planned cells that are not kept,
`{{variants}}` the cells that were run in more than one variant, `{{without_data}}` spreads beside those of cells
without data, `{{sources}}` what is known of the sources, `{{side_by_side}}` what they and we have for the same row,
`{{skew}}` how few labels clients have, `{{draws}}` rows on several partitions, `{{beyond}}` all numbers
beyond 3 deviations, `{{seeds}}` and `{{below}}` what the seeds say, `{{unpublished}}` kept cells that no source has;
`{{comparison VARIANT}}`, `{{marked VARIANT}}`, `{{late VARIANT}}` and `{{claims VARIANT}}` what one variant says, a
folder below docs/reproduction. No number that is made of kept results is typed.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import tabulate

from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import CURVES
from bflp.errors import DataError
from bflp.files import canonical_json
from bflp.grid.cell import NO_AGGREGATOR, Cell
from bflp.paper.claims import CLAIMS, in_words
from bflp.paper.comparison import MARKED_BEYOND, compare, comparison_table, parts, published, set_ups, summary
from bflp.paper.label_skew import effective_labels, label_counts
from bflp.paper.sources import KEYS, sources
from bflp.paper.spread_without_data import covers, spread_without_data
from bflp.paper.two_samples import MOST_RUNS, Sample, difference, runs_needed
from bflp.reporting.markdown import to_markdown
from bflp.reporting.table import MISSING
from bflp.reporting.titles import block_title
from bflp.results.frame import Finished, frame, read_folder
from bflp.results.result import Result

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproduction"
_RULES = ("EAA", "GAA", "AALV", "PPA", "CF")
# What is planned, most telling first: variant -> cells.
PLANNED: dict[str, tuple[str, ...]] = {
    "reference": (
        "fmnist/iid/10/FED/none/seed0",
        "fmnist/iid/10/FEDAVG/none/seed0",
        *(f"fmnist/iid/10/FVBWA/{rule}/seed0" for rule in _RULES),
        "fmnist/noniid/10/FEDAVG/none/seed0",
        *(f"fmnist/noniid/10/FVBWA/{rule}/seed0" for rule in _RULES),
        "fmnist/noniid/10/FVBA/EAA/seed0",
        "fmnist/iid/100/FEDAVG/none/seed0",
        *(f"fmnist/{partition}/100/FVBWA/{rule}/seed0" for partition in ("iid", "noniid") for rule in _RULES),
        "cifar10/iid/10/FVBWA/GAA/seed0",
        *(f"cifar10/noniid/10/FVBWA/{rule}/seed0" for rule in ("EAA", "AALV", "PPA")),
        *(f"fmnist/iid/10/FVBWA/EAA/seed{seed}" for seed in range(1, 5)),
        "fmnist/iid/10/FVBWA/AALV/seed1",
        "fmnist/iid-of-seed4/10/FVBWA/EAA/seed1",
        "fmnist/iid-of-seed1/10/FVBWA/EAA/seed4",
    ),
    "exact": (
        "fmnist/iid/10/FVBWA/EAA/seed0",
        "fmnist/iid/10/FVBWA-MLP/EAA/seed0",
        *(f"fmnist/noniid/10/{model}/none/seed0" for model in ("SCAFFOLD", "FEDPROX", "FEDNOVA")),
        *(f"cifar10/noniid/10/{model}/none/seed0" for model in ("SCAFFOLD", "FEDAVG", "FEDPROX", "FEDNOVA")),
        *(f"cifar10/noniid/10/FEDAVG/none/seed{seed}" for seed in (1, 2)),
        "cifar10/noniid-of-seed1/10/FEDAVG/none/seed0",
    ),
    "project": ("fmnist/iid/10/FVBWA/EAA/seed0", "fmnist/iid/10/FVBWA/AALV/seed0"),
}
LATE_ROUNDS = 20
END = ["accuracy %, last round", f"last {LATE_ROUNDS} rounds, ± standard deviation"]
# By weights that are equal where clients are: each is the other there.
TWINS = {"FED": "FEDAVG", "FEDAVG": "FED", "FVBA": "FVBWA", "FVBWA": "FVBA"}
SKEW_SEEDS = 200
Kept = tuple[str, Cell, Result]  # variant, cell, result


def page() -> str:
    """The page's text. Raises DataError for an unknown placeholder or a damaged result."""
    template = (FOLDER / "template.md").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)(?: (\w+))?\}\}", lambda match: _fill(match[1], match[2]), template)


@cache
def archive(variant: str) -> list[Finished]:
    """A variant's kept results with their evaluations."""
    return read_folder(FOLDER / variant)


def kept() -> list[Kept]:
    """All kept results, by variant and path."""
    return [(variant, cell, result) for variant in PLANNED for cell, result, _ in archive(variant)]


def compared(variant: str) -> pd.DataFrame:
    """A variant's numbers beside the published ones, as from `bflp.paper.comparison.compare`."""
    return _compared(archive(variant))


def _compared(finished: list[Finished]) -> pd.DataFrame:
    return compare(frame(finished), set_ups(finished))


def _fill(what: str, variant: str | None) -> str:
    alone: dict[str, Callable[[], str]] = {
        "cells": _cells,
        "missing": _missing,
        "variants": _variants,
        "without_data": _without_data,
        "sources": _sources,
        "side_by_side": _side_by_side,
        "skew": _skew,
        "beyond": _beyond,
        "seeds": _seeds,
        "below": _below,
        "unpublished": _unpublished,
    }
    if variant is None and what in alone:
        return alone[what]()
    if what == "draws" and variant in ("iid", "noniid"):
        return _draws(variant == "iid")
    if variant in PLANNED and what in ("comparison", "marked", "late", "claims"):
        if all(name != variant for name, _, _ in kept()):
            return "No cell of this variant is kept."
        if what == "comparison":
            return to_markdown(comparison_table(compared(variant))).rstrip()
        if what == "marked":
            return summary(compared(variant))
        if what == "late":
            return _late(variant)
        return _claims(variant)
    raise DataError(f"{FOLDER}/template.md: unknown placeholder {what} {variant or ''}")


def _claims(variant: str) -> str:
    """Also on what was run once for both arithmetics, and is kept as reference. Without times: the cells ran on
    different machines, and some beside other programs."""
    by_cell = {each[0]: each for each in archive(variant)}
    if variant == "exact":
        shared = {each[0]: each for each in archive("reference") if "aggregation" not in each[1].settings}
        by_cell = shared | by_cell
    found = frame(list(by_cell.values())).assign(train_seconds=math.nan)
    return "\n".join(in_words(source, found) for source in CLAIMS).rstrip()


def _missing() -> str:
    have = {(name, str(cell)) for name, cell, _ in kept()}
    lines = [f"- {name}: `{cell}`" for name, cells in PLANNED.items() for cell in cells if (name, cell) not in have]
    return "\n".join(lines) or "Nothing."


def _cells() -> str:
    rows = []
    for variant, cell, result in kept():
        environment, seconds = result.environment.model_dump(), result.timing.train_seconds
        rows.append(
            [
                variant,
                f"`{cell}`",
                len(seconds),
                f"{sum(seconds) / len(seconds):.1f}",
                environment["processes"],
                environment.get("gpu") or f"{environment['processor']}, {environment['cores']} cores",
                environment["torch"],
                f"`{result.fingerprint[:12]}`",
            ]
        )
    headers = ["variant", "cell", "rounds", "s/round", "processes", "machine", "torch", "fingerprint"]
    return _table(headers, rows)


def _late(wanted: str) -> str:
    """How much the accuracy moves from round to round at the end: what a single seed's last round leaves to chance."""
    rows = []
    for variant, cell, result in kept():
        if variant == wanted:
            rows.append([f"`{cell}`", *_end(result)])
    return _table(["cell", *END], rows)


def _end(result: Result) -> list[str]:
    """Of accuracies (%): that of the last round; mean and standard deviation of the last ones."""
    late = [entry.accuracy for entry in result.rounds][-LATE_ROUNDS:]
    return [_number(late[-1]), f"{_number(statistics.mean(late))} ± {_number(statistics.stdev(late))}"]


def _variants() -> str:
    by_cell: dict[Cell, list[tuple[str, Result]]] = {}
    for variant, cell, result in kept():
        by_cell.setdefault(cell, []).append((variant, result))
    table = sources()["bflp"].numbers.pivot_table(index=KEYS, columns="metric", values="published")
    theirs: dict[Any, dict[Any, float]] = table.to_dict("index")
    rows = []
    for cell, results in by_cell.items():
        if len(results) > 1:
            name = f"{cell.model} {cell.aggregator}"
            row = theirs[*cell.block, *cell.row]
            rows.append([name, "published", *(_number(row[metric]) for metric in CURVES)])
            for variant, result in results:
                rows.append([name, variant, *(_number(getattr(result.rounds[-1], metric)) for metric in CURVES)])
    headers = ["row", "arithmetic", "accuracy %", "ECE %", "NLL", "spread"]
    return _table(headers, rows)


def _without_data() -> str:
    """The spreads beside those of a cell without data, where these can be had."""
    rows = []
    for variant, cell, result in kept():
        if covers(cell):
            without = spread_without_data(cell, result.settings)
            measured = [entry.spread or math.nan for entry in result.rounds]
            farthest = max(abs(one / other - 1) for one, other in zip(without, measured, strict=True))
            rows.append([variant, f"`{cell}`", _number(measured[-1]), _number(without[-1]), f"{100 * farthest:.2f}"])
    headers = ["variant", "cell", "spread", "without data", "largest difference in any round, %"]
    return _table(headers, rows)


def _sources() -> str:
    lines = []
    for key, source in sources().items():
        about = source.about
        runs = f"means of {about.seeds} runs" if about.seeds > 1 else "one run"
        error = "without errors" if about.error == "none" else f"± {about.error}"
        lines.append(
            f"- **{about.name}**: [{about.title}]({about.url}); {runs}, {error}; set-up: "
            f"[{key}.yaml](../examples/papers/{key}.yaml). {' '.join(about.doubtful)}"
        )
    return "\n".join(lines)


def _side_by_side() -> str:
    """Accuracies of rows without a rule that several sources have, or one and we; arithmetic has no part in them."""
    finished = {
        each[0]: each for variant in PLANNED for each in archive(variant) if each[0].aggregator == NO_AGGREGATOR
    }
    ours = _compared(list(finished.values())).query("metric == 'accuracy'")
    theirs = published().query(f"metric == 'accuracy' and aggregator == '{NO_AGGREGATOR}'")
    rows = []
    for key, found in parts(theirs, KEYS):
        have = ours[(ours[KEYS] == list(key)).all(axis=1)]
        if len(found) == 1 and (have.empty or found["source"].iloc[0] == "bflp"):
            continue
        printed = {
            name: f"{value:.{sources()[name].about.decimals}f}"
            for name, value in zip(found["source"], found["published"], strict=True)
        }
        low, high = found["published"].min(), found["published"].max()
        rows.append(
            [
                block_title(*key[:3]),
                key[3],
                *(printed.get(name, MISSING) for name in sources()),
                f"{high - low:.1f}" if len(found) > 1 else MISSING,
                *((MISSING, "") if have.empty else (_ours(have), _verdict(have, low, high))),
            ]
        )
    names = [source.about.name for source in sources().values()]
    return _table(["block", "row", *names, "apart by", "ours", "ours beside them"], rows)


def _ours(have: pd.DataFrame) -> str:
    number, seeds = _number(have["ours"].iloc[0]), have["seeds"].iloc[0]
    return f"{number} ({seeds} seeds)" if seeds > 1 else number


def _verdict(have: pd.DataFrame, low: float, high: float) -> str:
    """Where ours lies beside the sources' range, and what is known that may be why."""
    value = have["ours"].iloc[0]
    inside = low <= value <= high
    texts = ["between them" if inside else f"{value - (high if value > high else low):+.1f} points"]
    for row in have.to_dict("records"):
        name = sources()[row["source"]].about.name
        if row["unit"] == "deviations":
            texts.append(f"{'beyond' if row['marked'] else 'within'} {MARKED_BEYOND:.0f} deviations of {name}")
        if row["differing"]:
            texts.append(f"another set-up than {name}: {row['differing']}")
    return "; ".join(texts)


def _beyond() -> str:
    """Numbers beyond 3 deviations, each beside the same seeds with the paper's arithmetic, where these were run."""
    rows = []
    for variant in PLANNED:
        for row in compared(variant).query("marked").to_dict("records"):
            cells = {cell for cell, *_ in archive(variant) if [*cell.block, *cell.row] == [row[key] for key in KEYS]}
            same = [each for each in archive("reference") if each[0] in cells]
            beside, why = MISSING, "unexplained"
            if variant != "reference" and len(same) == len(cells):
                found = _compared(same)
                number = found[(found["metric"] == row["metric"]) & (found["source"] == row["source"])].iloc[0]
                beside = f"{number['difference']:+.1f}"
                why = "unexplained: the same seeds of the reference variant are beyond 3, too"
                if not number["marked"]:
                    why = f"the set-up: {row['differing']}"
            if why == "unexplained":
                why = _on_another_partition(variant, row) or why
            if why.startswith("unexplained"):
                why += _beside_twin(row)
            name = f"{row['model']} {row['aggregator']}, {row['dataset']} {row['partition']} {row['clients']}"
            rows.append([variant, name, METRICS[row["metric"]].label, f"{row['difference']:+.1f}", beside, why])
    return _table(["variant", "row", "number", "deviations", "same seeds, reference", "why"], rows) if rows else "None."


def _beside_twin(row: Mapping[Any, Any]) -> str:
    """That the number is within 3 deviations of the paper's other row of what is one model here; else nothing."""
    numbers = sources()["bflp"].numbers.set_index([*KEYS, "metric"])
    for twin in _same_model(tuple(row[key] for key in KEYS))[1:]:
        theirs = numbers.loc[(*twin, row["metric"])]
        difference = (row["ours"] - theirs["published"]) / theirs["deviation"]
        if row["source"] == "bflp" and abs(difference) <= MARKED_BEYOND:
            return f"; {difference:+.1f} beside the paper's row of {twin[3]}, here the same model"
    return ""


def _same_model(key: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """A published row, and the other one of the same model where all clients have equally many samples."""
    twin = TWINS.get(key[3]) if key[1] == "iid" else None
    return [key, *([(*key[:3], twin, key[4])] if twin else [])]


def _on_another_partition(variant: str, row: Mapping[Any, Any]) -> str:
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
            found = _compared([(own, *cells[cell][1:])])
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
def _skew() -> str:
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
    return _table(headers, rows)


def _draws(iid: bool) -> str:
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
            settings, row = result.settings, [f"`{cell}`", drawn, cell.seed, *_end(result)]
            if not iid:
                counts = label_counts(cell.dataset, settings["setup"]["clients"], drawn, settings["partition"])
                row += [_number(result.rounds[4].accuracy), f"{effective_labels(counts):.2f}"]
            rows.append(row)
    headers = ["cell", "seed of the partition", "of all else", *END, *([] if iid else ["round 5", "effective labels"])]
    return _table(headers, rows) if rows else "None."


def _seeds() -> str:
    """Rows of a variant with several seeds, against the published runs of each row of the same model. Not where an
    error is printed as 0.00, which says too little of the deviation."""
    source = sources()["bflp"]
    rows = []
    known = set(source.numbers[KEYS].itertuples(index=False, name=None))
    of_variants = ((variant, *item) for variant in PLANNED for item in parts(frame(archive(variant)), KEYS))
    for variant, key, runs in of_variants:
        if len(runs) < 2 or key not in known:
            continue
        for metric, row in ((metric, row) for metric in ("accuracy", "ece", "nll") for row in _same_model(key)):
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
    return _table([*headers, "detectable", "runs needed"], rows)


def _below() -> str:
    """How many accuracies lie below the published mean, with ten IID clients on Fashion-MNIST."""
    found = compared("reference").query("metric == 'accuracy' and source == 'bflp'")
    found = found.query("dataset == 'fmnist' and partition == 'iid' and clients == '10'")
    below, without = found["difference"] < 0, found["aggregator"] == NO_AGGREGATOR
    variational = f"{(below & ~without).sum()} of {(~without).sum()} variational accuracies"
    return f"{variational} and {(below & without).sum()} of {without.sum()} deterministic ones"


def _unpublished() -> str:
    """Kept cells of which no source has a number."""
    theirs = {tuple(key) for key in published()[KEYS].to_numpy()}
    rows = []
    for variant, cell, result in kept():
        if (*cell.block, *cell.row) not in theirs:
            values = [getattr(result.rounds[-1], metric) for metric in CURVES]
            rows.append([variant, f"`{cell}`", *(MISSING if value is None else _number(value) for value in values)])
    return _table(["variant", "cell", "accuracy %", "ECE %", "NLL", "spread"], rows) if rows else "None."


def _table(headers: list[str], rows: list[list[Any]]) -> str:
    return tabulate.tabulate(rows, headers, tablefmt="pipe", disable_numparse=True)


def _number(value: float) -> str:
    return "not published" if math.isnan(value) else f"{value:.2f}"
