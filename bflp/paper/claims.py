"""Papers' statements as checks over results: each is true, false, or there is not enough data to say.

`CLAIMS` has them by source. Every check takes tidy results of the models that the source has numbers of, where none of
their seeds diverged, and compares rows over the seeds that they share: partitions and initial weights follow from the
seed. A test runs the same checks on the published numbers: that shows what the statements mean there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from bflp.grid.cell import NO_AGGREGATOR
from bflp.paper.comparison import parts, usable
from bflp.paper.sources import KEYS, sources

Row = tuple[str, str]  # model, aggregator
Means = dict[str, float]  # of COLUMNS
ROW = KEYS[3:]
LOW_SPREAD, HIGH_SPREAD = ("GAA", "AALV", "CF"), ("EAA", "PPA")
DETERMINISTIC = ("FED", "FEDAVG")
SIGNS = {"accuracy": 1, "ece": -1, "nll": -1}  # higher accuracy is better, lower ECE and NLL
COLUMNS = [*SIGNS, "spread", "train_seconds", "aggregation_seconds"]
SHOWN_CASES = 3
# A rule costs more time when its round takes this much longer than the mean of the others'.
SLOWER = 1.1


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check. detail: the cases it rests on (all, some, or their number), or what is missing."""

    claim: str
    outcome: Literal["true", "false", "not enough data"]
    detail: str


def check_all(source: str, frame: pd.DataFrame) -> list[Verdict]:
    """All claims of a source over tidy results (or its published numbers in the same columns)."""
    known = usable(frame[frame["model"].isin(sources()[source].numbers["model"])])
    results = known.reindex(columns=[*KEYS, "seed", *COLUMNS])
    return [_verdict(claim, list(check(results))) for claim, check in CLAIMS.get(source, ())]


def in_words(source: str, frame: pd.DataFrame) -> str:
    """A source's claims as Markdown, below its name."""
    lines = [f"- **{verdict.outcome}**: {verdict.claim} ({verdict.detail})" for verdict in check_all(source, frame)]
    return "\n".join([f"{sources()[source].about.name}:", "", *lines, ""])


def _verdict(claim: str, cases: list[tuple[str, bool]]) -> Verdict:
    if not cases:
        return Verdict(claim, "not enough data", "too few cases with all the rows that it compares")
    failed = [name for name, holds in cases if not holds]
    if not failed:
        # Few cases are named: a claim about much may rest on little.
        named = f": {', '.join(name for name, _ in cases)}" if len(cases) <= SHOWN_CASES else ""
        every = f"all {len(cases)} cases" if len(cases) > 1 else "the only case"
        return Verdict(claim, "true", f"in {every}{named}")
    some = f"{len(failed)} of {len(cases)} cases" if len(cases) > 1 else "the only case"
    return Verdict(claim, "false", f"in {some}: {', '.join(failed)}")


def _blocks(results: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame, list[Row]]]:
    """Name, number of clients, results and rows of each block."""
    for (dataset, partition, clients), block in parts(results, KEYS[:3]):
        rows = block[ROW].drop_duplicates().itertuples(index=False, name=None)
        yield f"{dataset} {partition} {clients}", clients, block, list(rows)


def _means(block: pd.DataFrame, rows: Sequence[Row]) -> dict[Row, Means]:
    """The means of rows of a block over the seeds that all of them have; nothing where they share none."""
    some = block[pd.MultiIndex.from_frame(block[ROW]).isin(rows)]
    shared = some[some.groupby("seed")["seed"].transform("size") == len(rows)]
    return {(row[0], row[1]): {name: part[name].mean() for name in COLUMNS} for row, part in parts(shared, ROW)}


def _pairs(block: pd.DataFrame, row: Row, others: Iterable[Row]) -> dict[Row, tuple[Means, Means]]:
    """A row and each of the others that it shares seeds with: the means of both."""
    means = {other: _means(block, [row, other]) for other in others}
    return {other: (pair[row], pair[other]) for other, pair in means.items() if pair}


def _low_spread_beats_deterministic(results: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    for name, clients, block, rows in _blocks(results):
        for row in rows if clients == "10" else ():
            pairs = _pairs(block, row, [other for other in rows if other[0] in DETERMINISTIC]).values()
            for metric, sign in SIGNS.items() if row[1] in LOW_SPREAD and pairs else ():
                holds = all(sign * mine[metric] > sign * its[metric] for mine, its in pairs)
                yield f"{name} {' '.join(row)} {metric}", holds


def _high_spread_falls_behind(results: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    for name, clients, block, rows in _blocks(results):
        for model, rule in rows if clients == "100" else ():
            low = [(model, other) for other in LOW_SPREAD if (model, other) in rows]
            pairs = _pairs(block, (model, rule), low) if rule in HIGH_SPREAD else {}
            if pairs:
                holds = all(mine["accuracy"] < its["accuracy"] for mine, its in pairs.values())
                yield f"{name} {model} {rule} against {'/'.join(other for _, other in pairs)}", holds


def _spread_order(results: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    order = ["CF", "AALV", "GAA"]
    for name, _, block, rows in _blocks(results):
        for model in dict.fromkeys(model for model, _ in rows):
            means = _means(block, [row for row in rows if row[0] == model and row[1] in (*order, *HIGH_SPREAD)])
            spreads = {rule: mean["spread"] for (_, rule), mean in means.items()}
            high = [spreads[rule] for rule in HIGH_SPREAD if rule in spreads]
            if spreads.keys() >= set(order) and high and all(map(math.isfinite, spreads.values())):
                values = [*(spreads[rule] for rule in order), min(high)]
                yield f"{name} {model}", values == sorted(values) and len(set(values)) == len(values)


def _no_rule_wins(results: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    rules = {*LOW_SPREAD, *HIGH_SPREAD}
    return _no_winner(results, lambda row: row[0] if row[1] == NO_AGGREGATOR else row[1], rules, SIGNS)


def _no_algorithm_wins(results: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    # FEDPROX-0.01 is FedProx, too.
    algorithms = {"FEDAVG", "FEDPROX", "SCAFFOLD", "FEDNOVA"}
    return _no_winner(results, lambda row: row[0].split("-")[0], algorithms, {"accuracy": 1})


def _no_winner(
    results: pd.DataFrame, name_of: Callable[[Row], str], needed: set[str], signs: Mapping[str, int]
) -> Iterator[tuple[str, bool]]:
    """One case: no name is the best of all rows in every block that has all that are needed, and by every metric."""
    winners: dict[str, set[str]] = {}
    compared = 0
    for _, _, block, rows in _blocks(results):
        means = _means(block, rows) if needed <= set(map(name_of, rows)) else {}
        for metric, sign in signs.items() if means else ():
            compared += 1
            best = max(sign * mean[metric] for mean in means.values())
            for row, mean in means.items():
                if sign * mean[metric] == best:
                    winners.setdefault(name_of(row), set()).add(f"{compared}")
    if compared > 1:
        name = f"best in some of {compared} comparisons: {', '.join(sorted(winners))}"
        yield name, all(len(won) < compared for won in winners.values())


def _ppa_is_slower(results: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    for name, _, block, rows in _blocks(results[results["train_seconds"].notna()]):
        for model in dict.fromkeys(model for model, _ in rows):
            means = _means(block, [row for row in rows if row[0] == model])
            seconds = {rule: mean["train_seconds"] + mean["aggregation_seconds"] for (_, rule), mean in means.items()}
            others = [value for rule, value in seconds.items() if rule != "PPA"]
            if "PPA" in seconds and others:
                yield f"{name} {model}", seconds["PPA"] > SLOWER * sum(others) / len(others)


CLAIMS: dict[str, tuple[tuple[str, Callable[[pd.DataFrame], Iterator[tuple[str, bool]]]], ...]] = {
    "bflp": (
        (
            "With 10 clients GAA, AALV and CF (low spread) beat the deterministic models on accuracy, ECE and NLL",
            _low_spread_beats_deterministic,
        ),
        ("With 100 clients EAA and PPA fall behind the low-spread rules in accuracy", _high_spread_falls_behind),
        ("The spreads are ordered CF < AALV < GAA < EAA and PPA", _spread_order),
        ("No rule is best everywhere", _no_rule_wins),
        ("PPA's rounds take more time than those of the other rules", _ppa_is_slower),
    ),
    "niid_bench": (("No algorithm has the best accuracy everywhere", _no_algorithm_wins),),
}
