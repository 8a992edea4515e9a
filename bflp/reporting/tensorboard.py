"""Results as event files that TensorBoard shows. Nothing that trains imports this, and only this needs tensorboard."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from bflp.errors import UserError
from bflp.results.frame import Finished

INSTALL = 'pip install -c envs/requirements.txt "tensorboard>=2.20,<3"'


def write_events(finished: Sequence[Finished], folder: Path) -> None:
    """Write a run per cell, named as the cell, into an empty or new folder.

    Scalars: the curves over rounds, and `final/{metric}` of the final model at its last round. The wall clock of a
    round is the seconds that it and those before it took. Raises UserError without tensorboard.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(f"tensorboard is not installed; in the project's environment: {INSTALL}") from None
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder: TensorBoard would mix old and new curves; name another")
    for cell, result, evaluation in finished:
        timing = result.timing
        parts = zip(timing.train_seconds, timing.aggregation_seconds, timing.evaluation_seconds, strict=True)
        clock = [0.0, *accumulate(map(sum, parts))]
        with SummaryWriter(str(folder / str(cell))) as writer:
            for entry in result.rounds:
                for name, value in entry.model_dump(exclude={"round"}, exclude_none=True).items():
                    writer.add_scalar(name, value, entry.round, walltime=clock[entry.round])
            for name, value in ((evaluation.final if evaluation else None) or {}).items():
                if value is not None:
                    writer.add_scalar(f"final/{name}", value, result.rounds_done, walltime=clock[result.rounds_done])
