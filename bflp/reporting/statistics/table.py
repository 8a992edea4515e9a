"""The statistics as tables: over all blocks, and block by block."""

from __future__ import annotations

import numpy as np

from bflp.datasets.registry import title as dataset_title
from bflp.reporting.statistics.analysis import FEWEST_SIGNED_RANKS, Compared, Statistics
from bflp.reporting.statistics.words import interval, summary
from bflp.reporting.table import Row, Table
from bflp.reporting.titles import federation_title, row_labels, row_title

NAMES = ("statistics", "statistics_blocks")


def statistics_tables(statistics: Statistics) -> list[Table]:
    """The tables of NAMES."""
    reference = row_title(statistics.rows[statistics.reference])
    overall = Table(
        name=NAMES[0],
        caption=f"{summary(statistics)} Difference: mean over blocks of paired differences to {reference}, with a 95% "
        "interval. p: of no difference, Holm-corrected. Claim: as in the text. P(better): share of paired runs "
        "that are better, with a 95% interval. Lost, tied, won: blocks whose mean difference is beyond or within what "
        "matters. Typically worse, same, better: probabilities of the Bayesian signed-rank test over blocks, from "
        f"{FEWEST_SIGNED_RANKS} on. Rank: average over the blocks that have all rows, 1 is best.",
        labels=("", "Model", "Aggregator"),
        groups=[("", 4), ("Blocks", 2), ("", 1)],
        columns=["Difference", "p", "Claim", "P(better)", "Lost, tied, won", "Typically worse, same, better", "Rank"],
        blocks=[
            (f"{compared.metric.title} ± {compared.margin:g}", _overall_lines(statistics, compared))
            for compared in statistics.compared
        ],
    )
    of_rounds = f" (numbers: {statistics.numbers})" if statistics.numbers else ""
    groups: dict[tuple[str, str], int] = {}
    for _, partition, clients in statistics.blocks:
        groups[partition, clients] = groups.get((partition, clients), 0) + 1
    order = sorted(range(len(statistics.blocks)), key=lambda index: list(groups).index(statistics.blocks[index][1:]))
    by_block = Table(
        name=NAMES[1],
        caption=f"Mean differences to {reference}, paired by seed{of_rounds}, with the 95% t interval of each block on "
        "its own; the intervals are not corrected for how many there are.",
        labels=("", "Model", "Aggregator"),
        groups=[(federation_title(*key), n) for key, n in groups.items()],
        columns=[dataset_title(statistics.blocks[block][0]) for block in order],
        blocks=[
            (
                compared.metric.title,
                [
                    (row_labels(statistics.rows[row]), [interval(compared, row, block) for block in order])
                    for row in statistics.others
                ],
            )
            for compared in statistics.compared
        ],
    )
    return [overall, by_block]


def _overall_lines(statistics: Statistics, compared: Compared) -> list[Row]:
    lines: list[Row] = []
    ranks = dict(zip(compared.ranked, compared.ranks.average, strict=True)) if compared.ranks else {}
    for index, row in enumerate(statistics.rows):
        rank = f"{ranks[index]:.2f}" if index in ranks else "—"
        if index == statistics.reference:
            lines.append((row_labels(row), ["reference", "", "", "", "", "", rank]))
            continue
        share, low, high = compared.improvement[:, index]
        typical = compared.typical[index]
        lines.append(
            (
                row_labels(row),
                [
                    interval(compared, index),
                    _p(compared.differs[index]),
                    ", ".join(compared.claims(index)) or "—",
                    "—" if np.isnan(share) else f"{share:.2f} [{low:.2f}, {high:.2f}]",
                    ", ".join(map(str, compared.outcomes[index])),
                    "—" if np.isnan(typical).any() else ", ".join(f"{value:.2f}" for value in typical),
                    rank,
                ],
            )
        )
    return lines


def _p(value: float) -> str:
    return "—" if np.isnan(value) else f"{value:.2g}"
