"""Ways to split a training set over clients: one file per strategy, each with a function `split`.

    split(labels, clients, settings, generator) -> list of index arrays, one per client

Every sample goes to exactly one client. What can change a split is in these files, `split.py` and `redraw.py`;
`files.py` reads and writes.
"""


class SplitError(Exception):
    """Settings and data clash: one line that says how and what to change."""
