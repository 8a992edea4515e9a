"""What a run is about to replace, said before it does."""

from __future__ import annotations

import sys

from bflp.grid.plan import Plan
from bflp.provenance.state import states


def announce(plan: Plan) -> None:
    """Say on stderr how many finished results are of other settings, code or data, and will be replaced."""
    finished = [cell for cell in plan.cells if plan.paths.result(cell).exists()]
    stale = [item for item in states(plan, finished) if item.kind == "stale"]
    if stale:
        print(
            f"{len(stale)} of {len(finished)} finished results are of other settings, code or data and will be "
            f"replaced, the first: {stale[0].cell}: {stale[0].reason}. They stay in {plan.paths.kept}: going back to "
            "what made them trains nothing. `bflp why` lists them all.",
            file=sys.stderr,
        )
