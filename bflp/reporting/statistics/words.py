"""What the statistics say, in one paragraph made from the numbers."""

from __future__ import annotations

from collections.abc import Sized

import numpy as np

from bflp.datasets.registry import title as dataset_title
from bflp.reporting.statistics.analysis import Compared, Statistics
from bflp.reporting.statistics.paired import FEWEST_CLAIMED, FEWEST_PAIRS, LEVEL
from bflp.reporting.statistics.ranks import FEWEST_ROWS, blocks_needed
from bflp.reporting.titles import partition_title, row_title

# A paragraph names so many leaders of a metric, and so many blocks of each.
MOST_NAMED = 3
_CONSTANT = "differs by the same in every run of a block, so that no test applies"
# What is told with the difference of each row.
_EACH = ("better", "worse", _CONSTANT)


def summary(statistics: Statistics) -> str:
    """One paragraph. A difference is claimed where its p, corrected over all that is asked, is below LEVEL."""
    rows, blocks, seeds = statistics.rows, statistics.blocks, statistics.seeds
    parts = [
        f"{_count(rows, 'row')} in {_count(blocks, 'block')} of {_count(seeds, 'seed')}: "
        f"differences to {row_title(rows[statistics.reference])}, paired by seed, mean over blocks with enough pairs"
        + (f" (numbers: {statistics.numbers})." if statistics.numbers else "."),
        *(f"{compared.metric.title}: {_of_metric(statistics, compared)}." for compared in statistics.compared),
        _about_claims(statistics),
        about_ranks(statistics),
        _left_out(statistics),
    ]
    return " ".join(part for part in parts if part)


def _of_metric(statistics: Statistics, compared: Compared) -> str:
    names, same = statistics.names(), f"the same within {compared.margin:g}"
    told: dict[str, list[str]] = {"better": [], "worse": [], same: []}
    for index in statistics.others:
        if np.isnan(compared.differs[index]):
            pairs = compared.overall.pairs[index]
            if compared.equal[index] and pairs >= FEWEST_PAIRS:
                told.setdefault("no different in any run", []).append(names[index])
            elif pairs < FEWEST_CLAIMED:
                told.setdefault("not enough seeds to say", []).append(names[index])
            else:
                told.setdefault(_CONSTANT, []).append(f"{names[index]} {interval(compared, index)}")
            continue
        claims = compared.claims(index)
        for claim in claims:
            if claim == "the same":
                told[same].append(names[index])
            else:
                lost, tied, won = compared.outcomes[index]
                told[claim].append(f"{names[index]} {interval(compared, index)} ({won} won, {tied} tied, {lost} lost)")
        if not claims:
            told.setdefault("cannot be told from no difference", []).append(names[index])
    every = len(statistics.others)
    listed = (
        f"{kind}: {'all other rows' if len(rows) == every > 1 and kind not in _EACH else ', '.join(rows)}"
        for kind, rows in told.items()
        if rows
    )
    return "; ".join([_best(statistics, compared), *listed])


def _best(statistics: Statistics, compared: Compared) -> str:
    """Which rows have the best mean where; a description, no claim."""
    means = compared.means[compared.ranked]
    complete = np.flatnonzero(~np.isnan(means).any(axis=0)).tolist() if compared.ranks else []
    where: dict[str, list[str]] = {}
    for block in complete:
        gains = compared.sign * means[:, block]
        dataset, partition, clients = statistics.blocks[block]
        for row in compared.ranked[gains == gains.max()]:
            title = f"{dataset_title(dataset)} {partition_title(partition)} {clients}"
            where.setdefault(statistics.names()[row], []).append(title)
    if not where:
        return "no block has all rows"
    leaders = sorted(where.items(), key=lambda item: -len(item[1]))
    told = [
        f"{name} in {len(blocks)}" + (f" ({'; '.join(blocks)})" if len(blocks) <= MOST_NAMED else "")
        for name, blocks in leaders[:MOST_NAMED]
    ]
    told += [_count(leaders[MOST_NAMED:], "other row")] if len(leaders) > MOST_NAMED else []
    return f"of {_count(complete, 'block')} with all rows, best mean of {', '.join(told)}"


def _about_claims(statistics: Statistics) -> str:
    asked = sum(int((~np.isnan(c.differs)).sum() + (~np.isnan(c.same)).sum()) for c in statistics.compared)
    needed = (
        f"a claim needs {FEWEST_CLAIMED} paired runs in blocks with at least two (a sign test of "
        f"{FEWEST_CLAIMED - 1} gives p = {2.0 ** (2 - FEWEST_CLAIMED):g} at best)"
    )
    if not asked:
        return f"Nothing is claimed: {needed}, and differences that vary within a block."
    return (
        f"Better, worse and the same are claims at {LEVEL:g}, Holm-corrected over the {asked} questions asked of rows "
        f"and metrics (does it differ? by less than what matters?); in brackets are 95% intervals; {needed}"
        + (", so nothing is claimed of a single block." if len(statistics.seeds) < FEWEST_CLAIMED else ".")
    )


def about_ranks(statistics: Statistics) -> str:
    """Whether average ranks can be compared, and what they would need."""
    found = [compared.ranks for compared in statistics.compared if compared.ranks is not None]
    if not found:
        return ""
    fewest = min(found, key=lambda ranks: (ranks.allowed, ranks.blocks))
    rows = len(fewest.average)
    if fewest.allowed:
        return (
            f"The average ranks' critical difference is {fewest.critical_difference:.2f} (Nemenyi, at {LEVEL:g} for "
            "each metric on its own)."
        )
    if rows < FEWEST_ROWS:
        return f"Average ranks are compared from {FEWEST_ROWS} rows on."
    return (
        f"Average ranks are not compared: {rows} rows need {blocks_needed(rows)} blocks that have them all, "
        f"there {'is' if fewest.blocks == 1 else 'are'} {fewest.blocks}."
    )


def _left_out(statistics: Statistics) -> str:
    parts = [
        f"{row_title(row)} in {'/'.join(block)}, where it diverged with seed {', '.join(map(str, sorted(seeds)))}"
        for (row, block), seeds in statistics.diverged.items()
    ]
    wanted = len(statistics.blocks) * len(statistics.seeds)
    gone = statistics.missing.items()
    parts += [f"{count} of {wanted} runs of {row_title(row)}, missing or not evaluated" for row, count in gone]
    return f"Left out: {'; '.join(parts)}." if parts else ""


def interval(compared: Compared, index: int, block: int | None = None) -> str:
    """A mean difference with its interval, over blocks or in one."""
    estimate, at = (compared.overall, index) if block is None else (compared.by_block, (index, block))
    difference, low, high = (array[at] for array in (estimate.difference, estimate.low, estimate.high))
    if np.isnan(difference):
        return "—"
    # Plus 0 makes 0 of -0.
    difference, low, high = (np.round(value, compared.digits) + 0.0 for value in (difference, low, high))
    text = f"{difference:+.{compared.digits}f}"
    return text if np.isnan(low) else f"{text} [{low:.{compared.digits}f}, {high:.{compared.digits}f}]"


def _count(things: Sized, what: str) -> str:
    return f"{len(things)} {what}" if len(things) == 1 else f"{len(things)} {what}s"
