"""Papers' statements as checks over results: each is true, false, or there is not enough data to say.

`CLAIMS` has them by source. Every check takes means per (dataset, partition, clients, model, aggregator) of the
models that the source has numbers of, where none of their seeds diverged. A test runs the same checks on the
published numbers: that shows what the statements mean there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from bflp.paper.comparison import parts, usable
from bflp.paper.sources import KEYS, sources

LOW_SPREAD, HIGH_SPREAD = ("GAA", "AALV", "CF"), ("EAA", "PPA")
DETERMINISTIC = ("FED", "FEDAVG")
SIGNS = {"accuracy": 1, "ece": -1, "nll": -1}  # higher accuracy is better, lower ECE and NLL
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
    columns = [*SIGNS, "spread", "train_seconds", "aggregation_seconds"]
    known = usable(frame[frame["model"].isin(sources()[source].numbers["model"])])
    means = known.groupby(KEYS)[[name for name in columns if name in frame]].mean().reindex(columns=columns)
    return [_verdict(claim, list(check(means))) for claim, check in CLAIMS.get(source, ())]


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


def _blocks(means: pd.DataFrame) -> Iterator[tuple[str, str, dict[tuple[str, str], dict[Any, Any]]]]:
    """Name, number of clients and rows ((model, aggregator) -> metrics) of each block."""
    for (dataset, partition, clients), block in parts(means.reset_index(), KEYS[:3]):
        rows = {(row["model"], row["aggregator"]): row for row in block.to_dict("records")}
        yield f"{dataset} {partition} {clients}", clients, rows


def _low_spread_beats_deterministic(means: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    for name, clients, rows in _blocks(means):
        deterministic = [row for (model, _), row in rows.items() if model in DETERMINISTIC]
        variational = [(key, row) for key, row in rows.items() if key[1] in LOW_SPREAD]
        if clients != "10" or not deterministic:
            continue
        for (model, rule), row in variational:
            for metric, sign in SIGNS.items():
                best = max(sign * other[metric] for other in deterministic)
                yield f"{name} {model} {rule} {metric}", sign * row[metric] > best


def _high_spread_falls_behind(means: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    for name, clients, rows in _blocks(means):
        if clients != "100":
            continue
        for (model, rule), row in rows.items():
            low = {other: rows[model, other]["accuracy"] for other in LOW_SPREAD if (model, other) in rows}
            if rule in HIGH_SPREAD and low:
                yield f"{name} {model} {rule} against {'/'.join(low)}", row["accuracy"] < min(low.values())


def _spread_order(means: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    order = ["CF", "AALV", "GAA"]
    for name, _, rows in _blocks(means):
        for model in dict.fromkeys(model for model, _ in rows):
            spreads = {rule: rows[model, rule]["spread"] for rule in (*order, *HIGH_SPREAD) if (model, rule) in rows}
            present = [rule for rule in order if rule in spreads]
            high = [spreads[rule] for rule in HIGH_SPREAD if rule in spreads]
            if len(present) == len(order) and high and all(map(math.isfinite, spreads.values())):
                values = [*(spreads[rule] for rule in order), min(high)]
                yield f"{name} {model}", values == sorted(values) and len(set(values)) == len(values)


def _no_rule_wins(means: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    return _no_winner(means, lambda row: row[1], {*LOW_SPREAD, *HIGH_SPREAD}, SIGNS)


def _no_algorithm_wins(means: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    # FEDPROX-0.01 is FedProx, too.
    algorithms = {"FEDAVG", "FEDPROX", "SCAFFOLD", "FEDNOVA"}
    return _no_winner(means, lambda row: row[0].split("-")[0], algorithms, {"accuracy": 1})


def _no_winner(
    means: pd.DataFrame, name_of: Callable[[tuple[str, str]], str], needed: set[str], signs: Mapping[str, int]
) -> Iterator[tuple[str, bool]]:
    """One case: no name is the best of all rows in every block that has all that are needed, and by every metric."""
    winners: dict[str, set[str]] = {}
    compared = 0
    for _, _, rows in _blocks(means):
        if not needed <= set(map(name_of, rows)):
            continue
        for metric, sign in signs.items():
            compared += 1
            best = max(sign * row[metric] for row in rows.values())
            for key, row in rows.items():
                if sign * row[metric] == best:
                    winners.setdefault(name_of(key), set()).add(f"{compared}")
    if compared > 1:
        name = f"best in some of {compared} comparisons: {', '.join(sorted(winners))}"
        yield name, all(len(won) < compared for won in winners.values())


def _ppa_is_slower(means: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    for name, _, rows in _blocks(means):
        for model in dict.fromkeys(model for model, _ in rows):
            seconds = {
                rule: row["train_seconds"] + row["aggregation_seconds"]
                for (other, rule), row in rows.items()
                if other == model and math.isfinite(row["train_seconds"])
            }
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
