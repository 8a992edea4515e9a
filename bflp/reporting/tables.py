"""The paper's tables from the tidy results, in LaTeX (booktabs, multirow), Markdown and HTML.

Numbers are means over seeds with their standard error (sample standard deviation / sqrt(seeds)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import tabulate

from bflp.datasets.registry import title
from bflp.grid.plan import NO_AGGREGATOR, Plan
from bflp.reporting.html import to_html
from bflp.reporting.titles import partition_title
from bflp.settings.schema import VARIATIONAL_MODELS, Settings

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Metric:
    """A column of the result tables."""

    name: str
    title: str
    higher_is_better: bool


RESULT_METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "Accuracy (%)", True),
        Metric("ece", "ECE (%)", False),
        Metric("nll", "NLL", False),
        Metric("brier", "Brier", False),
        Metric("adaptive_ece", "Adaptive ECE (%)", False),
        Metric("maximum_calibration_error", "MCE (%)", False),
        Metric("entropy", "Entropy", False),
        Metric("aleatoric", "Aleatoric", False),
        Metric("epistemic", "Epistemic", False),
        Metric("ood_auroc", "OOD AUROC (%)", True),
        Metric("clients_accuracy_worst_decile", "Worst decile accuracy (%)", True),
        Metric("clients_ece_worst_decile", "Worst decile ECE (%)", False),
        Metric("clients_nll_worst_decile", "Worst decile NLL", False),
        Metric("clients_accuracy_gini", "Gini of accuracy", False),
        Metric("clients_ece_gini", "Gini of ECE", False),
        Metric("clients_nll_gini", "Gini of NLL", False),
    )
}


@dataclass(frozen=True)
class Entry:
    """One number of a table: mean and standard error over `seeds` of `wanted` seeds; 0 seeds: missing or diverged."""

    mean: float = math.nan
    standard_error: float = math.nan
    seeds: int = 0
    wanted: int = 0
    bold: bool = False
    diverged: int = 0


@dataclass(frozen=True)
class Table:
    """A table for any of the formats.

    groups: (title, number of columns) of the upper header, over the value columns; columns: the lower header;
    blocks: (title, rows), each row its labels and its entries or texts; labels: headers of the block and row labels.
    """

    name: str
    caption: str
    labels: Sequence[str]
    groups: Sequence[tuple[str, int]]
    columns: Sequence[str]
    blocks: Sequence[tuple[str, Sequence[tuple[Sequence[str], Sequence[Entry | str]]]]]


def bold_best(means: Sequence[float], standard_errors: Sequence[float], higher_is_better: bool) -> list[bool]:
    """The paper's rule for a block of rows: bold is what lies within the best row's standard error of the best mean.

    Of several rows with the best mean the one with the smallest standard error counts. Missing rows (NaN) are not
    bold; a missing standard error counts as 0.
    """
    present = [index for index, mean in enumerate(means) if not math.isnan(mean)]
    if not present:
        return [False] * len(means)
    errors = [0.0 if math.isnan(error) else error for error in standard_errors]
    sign = -1 if higher_is_better else 1
    best = min(present, key=lambda index: (sign * means[index], errors[index]))
    return [index in present and abs(mean - means[best]) <= errors[best] + 1e-9 for index, mean in enumerate(means)]


def bold_lowest(means: Sequence[float], standard_errors: Sequence[float] = (), count: int = 3) -> list[bool]:
    """The paper's rule for a block of the spread table: the `count` lowest means are bold, whatever their errors."""
    present = sorted((mean, index) for index, mean in enumerate(means) if not math.isnan(mean))
    chosen = {index for _, index in present[:count]}
    return [index in chosen for index in range(len(means))]


class Summary:
    """Means and standard errors over seeds, from the tidy results."""

    def __init__(self, frame: pd.DataFrame, seeds: int) -> None:
        self.seeds = seeds
        keys = ["dataset", "partition", "clients", "model", "aggregator"]
        values = [*RESULT_METRICS, "spread"]
        # Not at the top: the Snakefile asks this module for the tables' names, and pandas takes most of a second.
        import pandas as pd

        frame = frame.assign(**{name: pd.to_numeric(frame[name]) for name in values})
        grouped = frame.groupby(keys)
        statistics = grouped[values].agg(["mean", "sem", "count"])
        self._numbers = {
            (key, metric): tuple(float(number) for number in row[metric])
            for key, row in statistics.iterrows()
            for metric in values
        }
        self._diverged = {key: int(group["diverged"].astype(bool).sum()) for key, group in grouped}

    def entry(self, key: tuple[Any, ...], metric: str) -> Entry:
        """The number of (dataset, partition, clients, model, aggregator); an empty Entry where nothing has run."""
        mean, error, count = self._numbers.get((key, metric), (math.nan, math.nan, 0))
        diverged = self._diverged.get(key, 0)
        if diverged:
            # A mean over the seeds that happened to survive would flatter the row.
            return Entry(wanted=self.seeds, diverged=diverged)
        return Entry(mean, error, int(count), self.seeds)


def make_tables(settings: Settings, frame: pd.DataFrame, summaries: dict[str, dict[str, Any]]) -> list[Table]:
    """All tables of a grid. frame: the tidy results; summaries: of the data sets, by name (may lack some)."""
    plan = Plan(settings)
    # The csv reader takes the word none for a missing value unless told otherwise.
    summary = Summary(frame.fillna({"aggregator": NO_AGGREGATOR}), len(settings.grid.seeds))
    tables = [results_table(plan, summary, clients) for clients in settings.grid.clients]
    if any(model in VARIATIONAL_MODELS for model in settings.grid.models):
        tables.append(spread_table(plan, summary))
    return [*tables, datasets_table(settings, summaries)]


def results_table(plan: Plan, summary: Summary, clients: int) -> Table:
    """Accuracy, ECE and NLL for one number of clients: a block per partition, a group of columns per data set."""
    grid, rows = plan.settings.grid, plan.rows()
    metrics = [RESULT_METRICS[name] for name in plan.settings.tables.metrics]
    blocks = []
    for partition in grid.partitions:
        columns = [
            _bolded(
                [summary.entry((dataset, partition, clients, *row), metric.name) for row in rows],
                partial(bold_best, higher_is_better=metric.higher_is_better),
            )
            for dataset in grid.datasets
            for metric in metrics
        ]
        blocks.append((partition_title(partition), _rows(rows, columns)))
    setup = plan.settings.setups[clients]
    return Table(
        name=f"results{clients}",
        caption=f"{clients} clients ({100 * setup.fraction:g}% active per round), {setup.rounds} rounds: "
        + _over_seeds(grid.seeds)
        + " Bold: within the best row's standard error of the best mean."
        + _about_gaps(blocks),
        labels=("", "Model", "Aggregator"),
        groups=[(title(dataset), len(metrics)) for dataset in grid.datasets],
        columns=[metric.title for _ in grid.datasets for metric in metrics],
        blocks=blocks,
    )


def spread_table(plan: Plan, summary: Summary) -> Table:
    """The spread of the final posteriors: a block per partition, a group of columns per number of clients."""
    grid = plan.settings.grid
    blocks = []
    for partition in grid.partitions:
        rows: list[tuple[Sequence[str], Sequence[Entry | str]]] = []
        for model in [name for name in grid.models if name in VARIATIONAL_MODELS]:
            keys = [(model, rule) for rule in grid.aggregators]
            columns = [
                _bolded(
                    [summary.entry((dataset, partition, clients, *key), "spread") for key in keys],
                    bold_lowest,
                )
                for clients in grid.clients
                for dataset in grid.datasets
            ]
            rows.extend(_rows(keys, columns))
        blocks.append((partition_title(partition), rows))
    return Table(
        name="spread",
        caption="Spread (Euclidean norm of all standard deviations) of the final global posterior: "
        + _over_seeds(grid.seeds)
        + " Bold: the three lowest of a model's rules."
        + _about_gaps(blocks),
        labels=("", "Model", "Aggregator"),
        groups=[(f"{clients} clients", len(grid.datasets)) for clients in grid.clients],
        columns=[title(dataset) for _ in grid.clients for dataset in grid.datasets],
        blocks=blocks,
    )


def round_time_table(settings: Settings, frame: pd.DataFrame) -> Table:
    """The paper's runtime table: a column per number of processes, and the time of aggregation.

    frame: model, aggregator, processes, seconds_per_round, standard_error, aggregation_seconds.
    """
    measured = settings.round_time
    rows: list[tuple[Sequence[str], Sequence[Entry | str]]] = []
    for (model, rule), group in frame.groupby(["model", "aggregator"], sort=False):
        by_processes = {row["processes"]: row for row in group.to_dict("records")}
        found = [by_processes[processes] for processes in measured.processes]
        times: list[Entry | str] = [
            Entry(float(row["seconds_per_round"]), float(row["standard_error"]), 1, 1) for row in found
        ]
        aggregation = f"{1000 * float(group['aggregation_seconds'].mean()):.1f}"
        rows.append(([str(model), "N/A" if rule == NO_AGGREGATOR else str(rule)], [*times, aggregation]))
    return Table(
        name="round_time",
        caption=f"Seconds of local training per communication round by number of processes, and milliseconds of "
        f"aggregation: {title(measured.dataset)}, {partition_title(measured.partition)}, {measured.clients} clients; "
        f"mean ± standard error over {measured.rounds} rounds after one to warm up.",
        labels=("", "Model", "Aggregator"),
        groups=[("Processes", len(measured.processes)), ("", 1)],
        columns=[*map(str, measured.processes), "Aggregation (ms)"],
        blocks=[("", rows)],
    )


def datasets_table(settings: Settings, summaries: dict[str, dict[str, Any]]) -> Table:
    """The data sets and how many training samples a client holds on average."""
    rows: list[tuple[Sequence[str], Sequence[Entry | str]]] = []
    for name in settings.grid.datasets:
        found = summaries.get(name)
        if found is None:
            rows.append(([title(name)], [Entry()] * (4 + len(settings.grid.clients))))
            continue
        channels, height, width = found["image_shape"]
        texts = [f"{channels}×{height}×{width}", found["labels"], found["train_size"], found["test_size"]]
        per_client = [f"{found['train_size'] / clients:.0f}" for clients in settings.grid.clients]
        rows.append(([title(name)], [*map(str, texts), *per_client]))
    return Table(
        name="datasets",
        caption="Data sets, and the mean number of training samples per client.",
        labels=("Data set",),
        groups=[("", 4), ("Samples per client", len(settings.grid.clients))],
        columns=[
            "Image",
            "Labels",
            "Training",
            "Test",
            *(f"{clients} clients" for clients in settings.grid.clients),
        ],
        blocks=[("", rows)],
    )


# Side by side on a page: the paper's three data sets with three metrics each.
WIDEST = 9


def to_latex(table: Table) -> str:
    """`table*` environments, one for each part of a wide table; they need booktabs, multirow and graphicx."""
    parts = _parts(table)
    floats = [_latex_float(part, index, len(parts)) for index, part in enumerate(parts, start=1)]
    return "\n".join(["% needs \\usepackage{booktabs,multirow,graphicx}", *floats])


def _parts(table: Table) -> list[Table]:
    """A table of too many columns as several, split between groups where that is possible."""
    pieces: list[list[tuple[str, int]]] = [[]]
    for text, width in table.groups:
        for start in range(0, width, WIDEST):
            piece = min(WIDEST, width - start)
            if sum(taken for _, taken in pieces[-1]) + piece > WIDEST:
                pieces.append([])
            pieces[-1].append((text, piece))
    parts, start = [], 0
    for groups in pieces:
        end = start + sum(width for _, width in groups)
        blocks = [(block, [(names, values[start:end]) for names, values in rows]) for block, rows in table.blocks]
        parts.append(replace(table, groups=groups, columns=table.columns[start:end], blocks=blocks))
        start = end
    return parts


def _latex_float(table: Table, part: int, parts: int) -> str:
    labels = len(table.labels)
    columns = "l" * labels + "".join("c" * width for _, width in table.groups)
    caption = table.caption + (f" Part {part} of {parts}." if parts > 1 else "")
    lines = [
        "\\begin{table*}[htbp]",
        "\\centering",
        f"\\caption{{{latex_escape(caption)}}}",
        f"\\label{{tab:{table.name}{f'-{part}' if part > 1 else ''}}}",
        "\\vspace{1ex}",
        "\\setlength{\\tabcolsep}{4pt}",
        # Shrinks a wide table to the text's width; a narrow one keeps its size.
        "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        "\\toprule",
        *_latex_header(table),
        *(line for block, rows in table.blocks for line in ["\\midrule", *_latex_block(block, rows, labels)]),
        "\\bottomrule",
        "\\end{tabular}}",
        "\\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _latex_header(table: Table) -> list[str]:
    upper, rules, column = [""] * len(table.labels), [], len(table.labels) + 1
    for text, width in table.groups:
        upper.append(f"\\multicolumn{{{width}}}{{c}}{{{latex_escape(text)}}}")
        if text:
            rules.append(f"\\cmidrule(lr){{{column}-{column + width - 1}}}")
        column += width
    lower = [latex_escape(text) for text in (*table.labels, *table.columns)]
    return [_latex_row(upper), *rules, _latex_row(lower)]


def _latex_block(block: str, rows: Sequence[tuple[Sequence[str], Sequence[Entry | str]]], labels: int) -> list[str]:
    """The rows of a block; with three labels the block and each model stand once, over all their rows."""
    lines = []
    firsts = [names[0] for names, _ in rows]
    for index, (names, values) in enumerate(rows):
        shown = [latex_escape(text) for text in names]
        if labels == 3:
            begins = index == 0 or firsts[index - 1] != names[0]
            height = firsts.count(names[0])
            if begins and index and max(height, firsts.count(firsts[index - 1])) > 1:
                lines.append(f"\\cmidrule{{2-{labels + len(values)}}}")
            shown[0] = _spanning(names[0], height) if begins else ""
            shown.insert(0, _spanning(block, len(rows)) if index == 0 else "")
        lines.append(_latex_row([*shown, *map(_latex_value, values)]))
    return lines


def _spanning(text: str, rows: int) -> str:
    return f"\\multirow{{{rows}}}{{*}}{{{latex_escape(text)}}}" if text and rows > 1 else latex_escape(text)


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + " \\\\"


def to_markdown(table: Table) -> str:
    """The same table for the eye, with its caption below."""
    groups = [text for text, width in table.groups for _ in range(width)]
    headers = [f"{group} {column}".strip() for group, column in zip(groups, table.columns, strict=True)]
    body = [
        [*([block] if len(table.labels) == 3 else []), *names, *map(_markdown_value, values)]
        for block, rows in table.blocks
        for names, values in rows
    ]
    text = tabulate.tabulate(
        [[_markdown_escape(cell) for cell in row] for row in body],
        headers=[_markdown_escape(text) for text in [*table.labels, *headers]],
        tablefmt="pipe",
        disable_numparse=True,
    )
    return f"{text}\n\n{table.caption}\n"


_LATEX_SPECIAL = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "±": "$\\pm$",
    "×": "$\\times$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex_escape(text: str) -> str:
    """Plain text as LaTeX that prints it."""
    return "".join(_LATEX_SPECIAL.get(character, character) for character in text)


def _markdown_escape(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_")


def _bolded(entries: list[Entry], rule: Callable[[list[float], list[float]], list[bool]]) -> list[Entry]:
    flags = rule([entry.mean for entry in entries], [entry.standard_error for entry in entries])
    return [replace(entry, bold=bold) for entry, bold in zip(entries, flags, strict=True)]


def _rows(
    keys: Sequence[tuple[str, str]], columns: Sequence[Sequence[Entry]]
) -> list[tuple[Sequence[str], Sequence[Entry | str]]]:
    shown = [(model, "N/A" if rule == NO_AGGREGATOR else rule) for model, rule in keys]
    return [(names, [column[index] for column in columns]) for index, names in enumerate(shown)]


def _latex_value(value: Entry | str) -> str:
    if isinstance(value, str):
        return latex_escape(value)
    if value.diverged:
        return f"diverged ({value.diverged}/{value.wanted})"
    if not value.seeds:
        return "--"
    number = f"{value.mean:.2f}"
    number = f"\\textbf{{{number}}}" if value.bold else number
    if not math.isnan(value.standard_error):
        number += f" $\\pm$ {value.standard_error:.2f}"
    return number + (f"$^{{{value.seeds}/{value.wanted}}}$" if value.seeds < value.wanted else "")


def _markdown_value(value: Entry | str) -> str:
    if isinstance(value, str):
        return value
    if value.diverged:
        return f"diverged ({value.diverged}/{value.wanted})"
    if not value.seeds:
        return "—"
    number = f"**{value.mean:.2f}**" if value.bold else f"{value.mean:.2f}"
    if not math.isnan(value.standard_error):
        number += f" ± {value.standard_error:.2f}"
    return number + (f" ({value.seeds}/{value.wanted} seeds)" if value.seeds < value.wanted else "")


def _about_gaps(blocks: Iterable[tuple[str, Sequence[tuple[Sequence[str], Sequence[Entry | str]]]]]) -> str:
    """What a caption says of entries without their full number of seeds."""
    entries = [entry for _, rows in blocks for _, values in rows for entry in values if isinstance(entry, Entry)]
    diverged = any(entry.diverged for entry in entries)
    missing = any(entry.seeds < entry.wanted and not entry.diverged for entry in entries)
    return (" n/m: only n of m seeds have run; a dash: none has." if missing else "") + (
        " diverged (n/m): training diverged with n of m seeds." if diverged else ""
    )


def _over_seeds(seeds: Iterable[int]) -> str:
    count = len(list(seeds))
    return "one seed." if count == 1 else f"mean ± standard error over {count} seeds."


Format = Literal["tex", "md", "html"]
FORMATS: dict[Format, Callable[[Table], str]] = {"tex": to_latex, "md": to_markdown, "html": to_html}


def table_names(settings: Settings) -> list[str]:
    """The names of the tables of a grid."""
    variational = any(model in VARIATIONAL_MODELS for model in settings.grid.models)
    return [
        *(f"results{clients}" for clients in settings.grid.clients),
        *(["spread"] if variational else []),
        "datasets",
    ]
