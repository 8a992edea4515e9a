"""Results as event files that TensorBoard shows. Nothing that trains imports this, and only this needs tensorboard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from bflp.errors import UserError
from bflp.results.evaluation import Evaluation
from bflp.results.frame import Finished
from bflp.results.result import Result

INSTALL = 'pip install -c envs/requirements.txt "tensorboard>=2.20,<3"'


def write_events(finished: Sequence[Finished], folder: Path) -> None:
    """Write a run per cell, named as the cell, into an empty or new folder.

    Raises UserError without tensorboard.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(f"tensorboard is not installed; in the project's environment: {INSTALL}") from None
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder: TensorBoard would mix old and new curves; name another")
    for cell, result, evaluation in finished:
        with SummaryWriter(str(folder / str(cell))) as writer:
            for name, value, round_, seconds in scalars(result, evaluation):
                writer.add_scalar(name, value, round_, walltime=seconds)


def scalars(result: Result, evaluation: Evaluation | None) -> Iterator[tuple[str, float, int, float]]:
    """Name, value, round and wall clock: the curves over rounds, `held_out/{metric}` where samples are held out, and
    `final/{metric}` of the final model at its last round. The clock of a round is the seconds that it and those before
    it took."""
    timing = result.timing
    parts = zip(timing.train_seconds, timing.aggregation_seconds, timing.evaluation_seconds, strict=True)
    clock = [0.0, *accumulate(map(sum, parts))]
    found: list[tuple[int, dict[str, float | None]]] = []
    for entry in result.rounds:
        values = entry.model_dump(exclude={"round"})
        held_out = values.pop("held_out", {})
        found.append((entry.round, values | _within("held_out", held_out)))
    if evaluation is not None and evaluation.final is not None:
        found.append((result.rounds_done, _within("final", evaluation.final)))
    for round_, values in found:
        yield from ((name, value, round_, clock[round_]) for name, value in values.items() if value is not None)


def _within(group: str, values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {f"{group}/{name}": value for name, value in values.items()}
