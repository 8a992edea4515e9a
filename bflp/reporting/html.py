"""Tables as HTML pages that stand alone: a click on a column's head sorts the rows, a field filters them."""

from __future__ import annotations

import html

from bflp.reporting.table import Entry, Table, shown

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff; }
p { max-width: 60em; }
div { overflow: auto; max-height: calc(100vh - 10em); min-height: 12em; }
table { border-collapse: collapse; border-top: 2px solid #222; border-bottom: 2px solid #222; }
th, td { padding: 0.2em 0.55em; text-align: right; font-variant-numeric: tabular-nums; }
td { white-space: nowrap; }
th { vertical-align: bottom; }
th.label, td.label { text-align: left; }
thead { position: sticky; top: 0; background: #fff; }
thead tr:first-child th { text-align: center; border-bottom: 1px solid #ccc; }
thead tr:last-child { border-bottom: 1px solid #222; }
thead button { font: inherit; font-weight: bold; border: 0; padding: 0; background: none; color: inherit;
  text-align: inherit; cursor: pointer; }
thead button::after { content: " \\2195"; color: #767676; }
th[aria-sort=ascending] button::after { content: " \\2191"; color: #222; }
th[aria-sort=descending] button::after { content: " \\2193"; color: #222; }
tbody tr:nth-child(even) { background: #f5f5f5; }
input { font: inherit; margin-bottom: 0.8em; padding: 0.2em 0.5em; width: 20em; max-width: 100%; }
pre { background: #f5f5f5; padding: 1em; overflow-x: auto; }
"""

# Numbers before texts, what is missing last in both directions; equal rows keep their order.
_SCRIPT = """
const body = document.querySelector("tbody"), heads = [...document.querySelectorAll("th[data-column]")];
const key = (row, column) => {
  const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent.trim();
  return text === "" ? null : isNaN(text) ? text : Number(text);
};
const order = (a, b) => typeof a === typeof b
  ? (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }))
  : (typeof a === "number" ? -1 : 1);
heads.forEach(head => head.firstElementChild.addEventListener("click", () => {
  const column = Number(head.dataset.column), down = head.ariaSort === "ascending" ? -1 : 1;
  heads.forEach(other => { other.ariaSort = null; });
  head.ariaSort = down > 0 ? "ascending" : "descending";
  const rows = [...body.rows].map(row => [key(row, column), row]);
  rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : down * order(a, b));
  body.append(...rows.map(([, row]) => row));
}));
document.querySelector("input").addEventListener("input", event => {
  const words = event.target.value.toLowerCase().split(/\\s+/);
  for (const row of body.rows) {
    const text = [...row.cells].map(cell => cell.textContent).join(" ").toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
});
"""


def to_html(table: Table) -> str:
    """A page with the table. Each row has all its labels, so that it can be read in any order."""
    heads = list(table.labels)
    with_block = any(block for block, _ in table.blocks)
    if heads[0] == "":
        # The blocks' column; tables on paper need no head for it.
        heads = ["Group", *heads[1:]] if with_block else heads[1:]
    upper = "".join(f'<th colspan="{width}">{html.escape(text)}</th>' for text, width in table.groups)
    lower = "".join(
        f'<th data-column="{index}"{_LABEL if index < len(heads) else ""}><button>{html.escape(text)}</button></th>'
        for index, text in enumerate([*heads, *table.columns])
    )
    rows = [
        "<tr>"
        + "".join(f"<td{_LABEL}>{html.escape(text)}</td>" for text in [block, *names][-len(heads) :])
        + "".join(map(_cell, values))
        + "</tr>"
        for block, lines in table.blocks
        for names, values in lines
    ]
    content = (
        f"<p>{html.escape(table.caption)}</p>\n"
        '<input type="search" placeholder="Filter rows" aria-label="Filter rows">\n<div><table>\n'
        f'<thead>\n<tr><th colspan="{len(heads)}"></th>{upper}</tr>\n<tr>{lower}</tr>\n</thead>\n<tbody>\n'
        + "\n".join(rows)
        + f"\n</tbody>\n</table></div>\n<script>{_SCRIPT}</script>"
    )
    return page(table.name, content)


def page(title: str, content: str) -> str:
    """A page that needs no other file."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{content}\n</body>\n</html>\n"
    )


_LABEL = ' class="label"'


def _cell(value: Entry | str) -> str:
    text = shown(value, html.escape, "<b>{}</b>", " ± {}", " <small>({} seeds)</small>")
    if isinstance(value, str):
        return f"<td>{text}</td>"
    # What the column is sorted by: nothing where there is no mean.
    return f'<td data-value="{repr(value.mean) if value.seeds else ""}">{text}</td>'
