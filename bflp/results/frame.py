"""All results as tidy data frames: a row per cell, or per cell and evaluated round."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from bflp.engine.metrics.registry import METRICS, on_demand
from bflp.engine.predictions import HELD_OUT
from bflp.errors import DataError
from bflp.grid.cell import Cell
from bflp.results.evaluation import Evaluation
from bflp.results.file import read_evaluation, read_result
from bflp.results.result import Result, Round

if TYPE_CHECKING:
    import pandas as pd

TIMES = ("train", "aggregation", "evaluation")
NAMES = ("dataset", "partition", "clients", "model", "aggregator")
# Further columns where the grid has sweeps: bflp.results.sweeps.
SWEEP_NAMES = ("sweep", "chosen")
Finished = tuple[Cell, Result, Evaluation | None]


def frame(finished: Iterable[Finished]) -> pd.DataFrame:
    """The rows of cells; metrics are missing where a cell diverged or is not evaluated."""
    # Imported here: pandas takes most of a second, and the Snakefile reads this module.
    import pandas as pd

    rows = [row(*each) for each in finished]
    # Of what is measured on demand only what was asked for.
    metrics = [name for name in METRICS if name not in on_demand() or any(each[name] is not None for each in rows)]
    columns = [*NAMES, "seed", "n_clients", "diverged", *metrics, "rounds"]
    columns += [*(f"{name}_seconds" for name in TIMES), "total_seconds", "up_megabytes", "down_megabytes"]
    columns += [f"held_out_{name}" for name in HELD_OUT]
    return pd.DataFrame(rows, columns=columns)


def row(cell: Cell, result: Result, evaluation: Evaluation | None) -> dict[str, Any]:
    """A cell's row: coordinates, metrics of the final model, seconds and megabytes (10^6 bytes) per round, metrics of
    the last round on what is held out."""
    timing, done = result.timing, max(1, len(result.timing.train_seconds))
    sent = result.traffic
    traffic = {"up": sent.up_bytes if sent else [], "down": sent.down_bytes if sent else []}
    return {
        **cell.as_dict(),
        "n_clients": result.settings["setup"]["clients"],
        "diverged": result.diverged is not None,
        **{name: evaluation.metric(name) if evaluation else None for name in METRICS},
        "rounds": len(timing.train_seconds),
        **{f"{name}_seconds": sum(getattr(timing, f"{name}_seconds")) / done for name in TIMES},
        "total_seconds": timing.total_seconds,
        **{f"{way}_megabytes": sum(sent) / done / 1e6 if sent else None for way, sent in traffic.items()},
        **(_held_out(result.rounds[-1]) if result.rounds else {}),
    }


def _held_out(entry: Round) -> dict[str, float | None]:
    return {f"held_out_{name}": getattr(entry.held_out, name, None) for name in HELD_OUT}


def rounds_frame(finished: Iterable[Finished]) -> pd.DataFrame:
    """The evaluated rounds of cells: coordinates, round, its metrics, the bins that its ECE was measured with, and the
    megabytes that were sent until then."""
    import pandas as pd

    own = [name for name in Round.model_fields if name != "held_out"]
    columns = [*NAMES, "seed", *own, *(f"held_out_{name}" for name in HELD_OUT), "ece_bins", "megabytes"]
    lines = [
        {
            **cell.as_dict(),
            **entry.model_dump(include=set(own)),
            **_held_out(entry),
            "ece_bins": result.environment.curve_ece_bins,
            "megabytes": result.megabytes(entry.round),
        }
        for cell, result, _ in finished
        for entry in result.rounds
    ]
    return pd.DataFrame(lines, columns=columns)


def classes_frame(finished: Iterable[Finished]) -> pd.DataFrame:
    """Labels of evaluated cells: coordinates, label, its samples in the test set, and the share that is right, in %."""
    import pandas as pd

    lines = [
        {**cell.as_dict(), "label": label, "samples": sum(row), "accuracy": 100 * row[label] / max(1, sum(row))}
        for cell, _, evaluation in finished
        for label, row in enumerate(evaluation.confusion or () if evaluation else ())
        if any(row)
    ]
    return pd.DataFrame(lines, columns=[*NAMES, "seed", "label", "samples", "accuracy"])


def read_csv(path: Path | TextIO) -> pd.DataFrame:
    """What `frame` or `rounds_frame` gave, from a CSV file: names stay text, also those that look like numbers."""
    import pandas as pd

    texts = dict.fromkeys((*NAMES, *SWEEP_NAMES), str)
    return pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])


def read_folder(folder: Path) -> list[Finished]:
    """All results below {folder}/cells, with their evaluations, whatever settings and code made them.

    Raises DataError for a damaged one.
    """
    cells = folder / "cells"
    files = sorted(cells.rglob("seed*.json"))
    if not files:
        raise DataError(f"there is no result below {folder}")
    found: list[Finished] = []
    for file in files:
        cell = Cell.parse(str(file.relative_to(cells).with_suffix("")))
        evaluation = cell.path(folder / "evaluations", ".json")
        found.append(
            (cell, read_result(file, cell), read_evaluation(evaluation, cell) if evaluation.exists() else None)
        )
    return found
