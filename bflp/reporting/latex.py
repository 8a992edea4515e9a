"""Tables in LaTeX: booktabs, multirow; as many floats as it takes for no row or column to run off a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from bflp.reporting.table import Row, Table, TableBlock, shown

# What fits a page: columns side by side (the page shrinks a table to some extent), rows one below the other.
WIDEST = 9
LONGEST = 28


def to_latex(table: Table) -> str:
    """`table*` environments, one for each part of a large table; they need booktabs, multirow and graphicx."""
    parts = [part for piece in _split_columns(table) for part in _split_rows(piece)]
    floats = [_float(part, index, len(parts)) for index, part in enumerate(parts, start=1)]
    return "\n".join(["% needs \\usepackage{booktabs,multirow,graphicx}", *floats])


def _split_columns(table: Table) -> list[Table]:
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


def _split_rows(table: Table) -> list[Table]:
    """A table of too many rows as several, split between blocks where that is possible."""
    pieces: list[list[TableBlock]] = [[]]
    for block, rows in table.blocks:
        for start in range(0, len(rows), LONGEST):
            piece = rows[start : start + LONGEST]
            if sum(len(taken) for _, taken in pieces[-1]) + len(piece) > LONGEST:
                pieces.append([])
            pieces[-1].append((block, piece))
    return [replace(table, blocks=blocks) for blocks in pieces]


def _float(table: Table, part: int, parts: int) -> str:
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
        # Shrink a table that is wider or higher than the page; a smaller one keeps its size.
        "\\resizebox*{!}{\\ifdim\\totalheight>0.8\\textheight 0.8\\textheight\\else\\totalheight\\fi}{%",
        "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        "\\toprule",
        *_header(table),
        *(line for block, rows in table.blocks for line in ["\\midrule", *_block(block, rows, labels)]),
        "\\bottomrule",
        "\\end{tabular}}}",
        "\\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _header(table: Table) -> list[str]:
    upper, rules, column = [""] * len(table.labels), [], len(table.labels) + 1
    for text, width in table.groups:
        upper.append(f"\\multicolumn{{{width}}}{{c}}{{{latex_escape(text)}}}")
        if text:
            rules.append(f"\\cmidrule(lr){{{column}-{column + width - 1}}}")
        column += width
    lower = [latex_escape(text) for text in (*table.labels, *table.columns)]
    return [_row(upper), *rules, _row(lower)]


def _block(block: str, rows: Sequence[Row], labels: int) -> list[str]:
    """The rows of a block; with three labels the block and each model stand once, over all their rows."""
    lines: list[str] = []
    firsts = [names[0] for names, _ in rows]
    # A model's rows need not stand together: each run of them has a name of its own.
    runs = [len(list(run)) for _, run in groupby(firsts)]
    heights = [height for height in runs for _ in range(height)]
    for index, (names, values) in enumerate(rows):
        texts = [latex_escape(text) for text in names]
        if labels == 3:
            begins = index == 0 or firsts[index - 1] != names[0]
            height = heights[index]
            if begins and index and max(height, heights[index - 1]) > 1:
                lines.append(f"\\cmidrule{{2-{labels + len(values)}}}")
            texts[0] = _spanning(names[0], height) if begins else ""
            texts.insert(0, _spanning(block, len(rows)) if index == 0 else "")
        lines.append(_row([*texts, *map(_value, values)]))
    return lines


def _spanning(text: str, rows: int) -> str:
    return f"\\multirow{{{rows}}}{{*}}{{{latex_escape(text)}}}" if text and rows > 1 else latex_escape(text)


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + " \\\\"


_SPECIAL = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "±": "$\\pm$",
    "×": "$\\times$",
    "—": "--",
    "†": "$^\\dagger$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex_escape(text: str) -> str:
    """Plain text as LaTeX that prints it."""
    return "".join(_SPECIAL.get(character, character) for character in text)


_value = partial(shown, escape=latex_escape, bold="\\textbf{{{}}}", error=" $\\pm$ {}", seeds="$^{{{}}}$")
