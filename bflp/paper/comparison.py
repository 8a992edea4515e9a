"""Our numbers beside the published ones, cell by cell, of every source that has them.

The difference is given in units of the published standard deviation of one seed, and beyond 3 it is marked; where a
source prints no error it is given in points (of an NLL or a spread: as it is).
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from bflp.engine.metrics.registry import METRICS
from bflp.grid.cell import Cell
from bflp.paper.sources import KEYS, set_up, sources
from bflp.reporting.table import MISSING, Entry, Table
from bflp.reporting.titles import aggregator_title, block_title, row_title
from bflp.results.frame import Finished

MARKED_BEYOND = 3.0
COLUMNS = [
    *KEYS,
    "metric",
    "source",
    "published",
    "published_error",
    "sources_low",  # of all sources that have this number, where there are several; else NaN
    "sources_high",
    "ours",
    "ours_error",
    "seeds",
    "difference",
    "unit",  # deviations or points
    "marked",
    "differing",  # the settings that are not the published ones, in words
]
SetUps = Sequence[tuple[Cell, Mapping[str, Any]]]  # of cells, as from bflp.paper.sources.set_up


def published() -> pd.DataFrame:
    """All published numbers: those of `Source` with source, sources_low and sources_high."""
    frame = pd.concat([each.numbers.assign(source=key) for key, each in sources().items()], ignore_index=True)
    groups = frame.groupby([*KEYS, "metric"])["published"]
    several = groups.transform("count") > 1
    low, high = groups.transform("min").where(several), groups.transform("max").where(several)
    return frame.assign(sources_low=low, sources_high=high)


def set_ups(finished: Iterable[Finished]) -> SetUps:
    """Of results, as they say themselves."""
    return [(cell, set_up(result.settings, found.settings if found else {})) for cell, result, found in finished]


def compare(frame: pd.DataFrame, setups: SetUps) -> pd.DataFrame:
    """COLUMNS for every published number of which we have at least one seed, and of whose seeds none diverged.

    frame: tidy results (results.frame); setups: of its cells.
    """
    theirs = published()
    metrics = [name for name in METRICS if name in frame]
    long = usable(frame).melt(id_vars=KEYS, value_vars=metrics, var_name="metric", value_name="value")
    long["value"] = pd.to_numeric(long["value"])
    ours = long.groupby([*KEYS, "metric"], sort=False)["value"].agg(["mean", "sem", "count"]).reset_index()
    ours = ours.rename(columns={"mean": "ours", "sem": "ours_error", "count": "seeds"})
    joined = theirs.merge(ours[ours["seeds"] > 0], on=[*KEYS, "metric"])
    joined = joined.rename(columns={"error": "published_error"})
    difference, known = joined["ours"] - joined["published"], joined["deviation"].notna()
    joined["difference"] = (difference / joined["deviation"]).where(known, difference)
    joined["unit"] = np.where(known, "deviations", "points")
    joined["marked"] = known & (joined["difference"].abs() > MARKED_BEYOND)
    joined["differing"] = _differing(joined, setups)
    # Rows in the order of the sources, and what several sources have together.
    return joined.sort_values([*KEYS, "metric"], key=lambda names: pd.factorize(names)[0], ignore_index=True)[COLUMNS]


def usable(frame: pd.DataFrame) -> pd.DataFrame:
    """Tidy results without the rows that diverged with any seed of a block: those that survived would flatter them."""
    diverged = frame["diverged"].astype(bool)
    return frame[~diverged.groupby([frame[key] for key in KEYS]).transform("any")]


def left_out(frame: pd.DataFrame) -> str:
    """Which published rows are left out of tidy results, since they diverged, and with which seeds; or nothing."""
    gone = frame[frame["diverged"].astype(bool)].merge(published()[KEYS].drop_duplicates(), on=KEYS)
    rows = [
        f"{row_title(key[3:])} in {'/'.join(key[:3])}, where it diverged with seed {', '.join(map(str, part['seed']))}"
        for key, part in parts(gone, KEYS)
    ]
    return f"Left out: {'; '.join(rows)}." if rows else ""


def _differing(joined: pd.DataFrame, setups: SetUps) -> list[str]:
    """In what each row's settings differ from its source's, over all its seeds."""
    by_row: dict[tuple[str, ...], list[tuple[Cell, Mapping[str, Any]]]] = {}
    for cell, settings in setups:
        by_row.setdefault((*cell.block, *cell.row), []).append((cell, settings))
    found: dict[tuple[str, ...], str] = {}
    for key in map(tuple, joined[["source", *KEYS]].drop_duplicates().to_numpy()):
        texts = [text for of_cell in by_row[key[1:]] for text in sources()[key[0]].differing(*of_cell)]
        found[key] = "; ".join(dict.fromkeys(texts))
    return [found[tuple(key)] for key in joined[["source", *KEYS]].to_numpy()]


def parts(frame: pd.DataFrame, names: list[str]) -> Iterable[tuple[tuple[Any, ...], pd.DataFrame]]:
    """The parts of a frame by the values of some columns, in the order in which they come."""
    return cast("Iterable[tuple[tuple[Any, ...], pd.DataFrame]]", frame.groupby(names, sort=False))


def comparison_table(compared: pd.DataFrame, left_out: str = "") -> Table:
    """The comparison as a table: a row per model, aggregator, metric and source, a block of rows per block of cells.

    left_out: what the caption says of rows that are not there.
    """
    notes = {text: _letters(index) for index, text in enumerate(filter(None, dict.fromkeys(compared["differing"])))}
    shown = []
    for key, block in parts(compared, KEYS[:3]):
        rows = []
        for row in block.to_dict("records"):
            labels = f"{row['model']} {aggregator_title(row['aggregator'])}", METRICS[row["metric"]].title
            source = sources()[row["source"]].about
            theirs = Entry(row["published"], row["published_error"], 1, 1, digits=source.decimals)
            ours = Entry(row["ours"], row["ours_error"], 1, 1)
            difference = f"{row['difference']:+.1f}{'' if row['unit'] == 'deviations' else ' pt'}"
            values = (source.name, theirs, ours, str(row["seeds"]), difference + (" *" if row["marked"] else ""))
            rows.append((labels, (*values, _span(row), notes.get(row["differing"], "same"))))
        shown.append((block_title(*key), rows))
    differing = "".join(f" ({letter}) {text}." for text, letter in notes.items())
    return Table(
        name="comparison",
        caption="Published and our numbers, mean ± standard error over seeds (one seed: no error), theirs ± what they "
        "print. Difference: in units of the published standard deviation of one seed (at least half a unit of the last "
        "digit), * beyond 3; where no error is published in points (pt). Sources: lowest and highest published, where "
        f"there are several. Set-up: whether it is the published one, and what differs.{differing}"
        + (f" {left_out}" if left_out else ""),
        labels=("", "Row", "Metric"),
        groups=[("", 7)],
        columns=["Source", "Published", "Ours", "Seeds", "Difference", "Sources", "Set-up"],
        blocks=shown,
    )


def _span(row: Mapping[Any, Any]) -> str:
    """The range of a number over the sources that have it, or that there is only one."""
    low, high = (np.format_float_positional(row[name], min_digits=1) for name in ("sources_low", "sources_high"))
    return MISSING if np.isnan(row["sources_low"]) else f"{low} to {high}"


def _letters(index: int) -> str:
    """a to z, then aa to zz."""
    alphabet = string.ascii_lowercase
    return alphabet[index] if index < 26 else alphabet[index // 26 - 1] + alphabet[index % 26]


def summary(compared: pd.DataFrame) -> str:
    """How many numbers were compared, and how many differ by more than 3 deviations, with and without the set-up."""
    same, known = compared["differing"] == "", compared["unit"] == "deviations"
    parts = []
    for name, part in (("the published set-up", same), ("another set-up", ~same)):
        if part.any():
            deviations, points = (part & known).sum(), (part & ~known).sum()
            marked = int(compared.loc[part, "marked"].sum())
            parts.append(f"with {name} {marked} of {deviations} beyond 3 deviations, {points} without a deviation")
    return "; ".join(parts)
