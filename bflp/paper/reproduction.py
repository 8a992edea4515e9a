"""docs/reproduction.md, made from the kept results below docs/reproduction and the text of its template.

In the template `{{cells}}` becomes the list of kept cells, `{{missing}}` that of the planned cells that are not kept,
`{{variants}}` the cells that were run in more than one variant, `{{without_data}}` spreads beside those of cells
without data, `{{sources}}` what is known of the sources, `{{side_by_side}}` what they and we have for the same row,
`{{skew}}` how few labels clients have, `{{draws}}` rows on several partitions, `{{weights}}` cells from the initial
weights of other seeds, `{{beyond}}` all numbers beyond 3 deviations, `{{seeds}}` and `{{below}}` what the seeds say,
`{{unpublished}}` kept cells that no source has;
`{{comparison VARIANT}}`, `{{marked VARIANT}}`, `{{late VARIANT}}` and `{{claims VARIANT}}` what one variant says, a
folder below docs/reproduction. No number that is made of kept results is typed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pandas as pd

from bflp.engine.metrics.registry import METRICS
from bflp.engine.predictions import CURVES
from bflp.errors import DataError
from bflp.grid.cell import NO_AGGREGATOR, Cell
from bflp.paper import full_scale
from bflp.paper.claims import CLAIMS, in_words
from bflp.paper.comparison import MARKED_BEYOND, comparison_table, parts, published, summary
from bflp.paper.full_scale import END, PLANNED, archive, as_number, as_table, compared, compared_of, end, kept
from bflp.paper.seeds import below, beside_twin, draws, initial_weights, on_another_partition, seeds, skew
from bflp.paper.sources import KEYS, sources
from bflp.paper.spread_without_data import covers, spread_without_data
from bflp.reporting.markdown import to_markdown
from bflp.reporting.table import MISSING
from bflp.reporting.titles import block_title
from bflp.results.frame import frame
from bflp.results.result import Result


def page() -> str:
    """The page's text. Raises DataError for an unknown placeholder or a damaged result."""
    template = (full_scale.FOLDER / "template.md").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)(?: (\w+))?\}\}", lambda match: _fill(match[1], match[2]), template)


def _fill(what: str, variant: str | None) -> str:
    alone: dict[str, Callable[[], str]] = {
        "cells": _cells,
        "missing": _missing,
        "variants": _variants,
        "without_data": _without_data,
        "sources": _sources,
        "side_by_side": _side_by_side,
        "skew": skew,
        "weights": initial_weights,
        "beyond": _beyond,
        "seeds": seeds,
        "below": below,
        "unpublished": _unpublished,
    }
    if variant is None and what in alone:
        return alone[what]()
    if what == "draws" and variant in ("iid", "noniid"):
        return draws(variant == "iid")
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
    raise DataError(f"{full_scale.FOLDER}/template.md: unknown placeholder {what} {variant or ''}")


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
    return as_table(headers, rows)


def _late(wanted: str) -> str:
    """How much the accuracy moves from round to round at the end: what a single seed's last round leaves to chance."""
    rows = []
    for variant, cell, result in kept():
        if variant == wanted:
            rows.append([f"`{cell}`", *end(result)])
    return as_table(["cell", *END], rows)


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
            rows.append([name, "published", *(as_number(row[metric]) for metric in CURVES)])
            for variant, result in results:
                rows.append([name, variant, *(as_number(getattr(result.rounds[-1], metric)) for metric in CURVES)])
    headers = ["row", "arithmetic", "accuracy %", "ECE %", "NLL", "spread"]
    return as_table(headers, rows)


def _without_data() -> str:
    """The spreads beside those of a cell without data, where these can be had."""
    rows = []
    for variant, cell, result in kept():
        if covers(cell):
            without = spread_without_data(cell, result.settings)
            measured = [entry.spread or math.nan for entry in result.rounds]
            farthest = max(abs(one / other - 1) for one, other in zip(without, measured, strict=True))
            rows.append(
                [variant, f"`{cell}`", as_number(measured[-1]), as_number(without[-1]), f"{100 * farthest:.2f}"]
            )
    headers = ["variant", "cell", "spread", "without data", "largest difference in any round, %"]
    return as_table(headers, rows)


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
    ours = compared_of(list(finished.values())).query("metric == 'accuracy'")
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
    return as_table(["block", "row", *names, "apart by", "ours", "ours beside them"], rows)


def _ours(have: pd.DataFrame) -> str:
    number, runs = as_number(have["ours"].iloc[0]), have["seeds"].iloc[0]
    return f"{number} ({runs} seeds)" if runs > 1 else number


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
                found = compared_of(same)
                number = found[(found["metric"] == row["metric"]) & (found["source"] == row["source"])].iloc[0]
                beside = f"{number['difference']:+.1f}"
                why = "unexplained: the same seeds of the reference variant are beyond 3, too"
                if not number["marked"]:
                    why = f"the set-up: {row['differing']}"
            if why == "unexplained":
                why = on_another_partition(variant, row) or why
            if why.startswith("unexplained"):
                why += beside_twin(row)
            name = f"{row['model']} {row['aggregator']}, {row['dataset']} {row['partition']} {row['clients']}"
            rows.append([variant, name, METRICS[row["metric"]].label, f"{row['difference']:+.1f}", beside, why])
    return (
        as_table(["variant", "row", "number", "deviations", "same seeds, reference", "why"], rows) if rows else "None."
    )


def _unpublished() -> str:
    """Kept cells of which no source has a number."""
    theirs = {tuple(key) for key in published()[KEYS].to_numpy()}
    rows = []
    for variant, cell, result in kept():
        if (*cell.block, *cell.row) not in theirs:
            values = [getattr(result.rounds[-1], metric) for metric in CURVES]
            rows.append([variant, f"`{cell}`", *(MISSING if value is None else as_number(value) for value in values)])
    return as_table(["variant", "cell", "accuracy %", "ECE %", "NLL", "spread"], rows) if rows else "None."
