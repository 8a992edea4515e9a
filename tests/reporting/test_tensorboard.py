"""What TensorBoard's own reader finds in exported results is what the results say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import fabricated_run
import pytest

from bflp.errors import UserError
from bflp.reporting.tensorboard import INSTALL, scalars, write_events
from bflp.results.frame import Finished, read_folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> list[Finished]:
    """Three cells, one of which diverged, of clients with samples that are held out."""
    grid: dict[str, Any] = {"models": ["FED", "FVBA"], "aggregators": ["EAA", "PPA"], "seeds": [0]}
    folder, top = tmp_path_factory.mktemp("tensorboard"), {"partitions": {"noniid": {"held_out": 0.2}}}
    plan = fabricated_run.plan(folder, samples=200, top=top, **grid)
    fabricated_run.make(plan, diverged=[plan.cells[2]])
    return read_folder(folder / "results")


def expected_of(finished: Finished) -> dict[str, dict[int, float]]:
    """name -> round -> value."""
    cell, result, evaluation = finished
    found = {
        name: {entry.round: getattr(entry, name) for entry in result.rounds}
        for name in ("accuracy", "ece", "nll", *(["spread"] if cell.model == "FVBA" else []))
    }
    for name in ("accuracy", "ece", "nll"):
        found[f"held_out/{name}"] = {entry.round: getattr(entry.held_out, name) for entry in result.rounds}
    final = (evaluation and evaluation.final) or {}
    assert bool(final) is (result.diverged is None)
    return {**found, **{f"final/{name}": {12: value} for name, value in final.items() if value is not None}}


def test_every_number_of_a_cell_has_a_name_a_round_and_a_time(finished: list[Finished]) -> None:
    """Also where tensorboard is not installed."""
    for each in finished:
        found: dict[str, dict[int, float]] = {}
        for name, value, round_, seconds in scalars(*each[1:]):
            found.setdefault(name, {})[round_] = value
            assert seconds == 1.5 * round_
        assert found == expected_of(each)


def test_the_reader_of_tensorboard_finds_every_number(finished: list[Finished], tmp_path: Path) -> None:
    reason = f"tensorboard is not installed: {INSTALL}"
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=reason)
    write_events(finished, tmp_path / "events")
    for each in finished:
        found = accumulator.EventAccumulator(str(tmp_path / "events" / str(each[0])))
        found.Reload()
        wanted = expected_of(each)
        assert set(found.Tags()["scalars"]) == set(wanted)
        for name, expected in wanted.items():
            events = found.Scalars(name)
            # Single precision is what TensorBoard keeps.
            assert {event.step: event.value for event in events} == pytest.approx(expected, rel=1e-6)
            # Half a second each for training, aggregation and evaluation.
            assert [event.wall_time for event in events] == [1.5 * event.step for event in events]


def test_without_tensorboard_one_line_says_how_to_get_it(
    finished: list[Finished], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError) as caught:
        write_events(finished, tmp_path / "events")
    assert "tensorboard is not installed" in str(caught.value) and INSTALL in str(caught.value)
    assert "\n" not in str(caught.value) and not (tmp_path / "events").exists()


def test_a_folder_with_something_in_it_is_refused(finished: list[Finished], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason=f"tensorboard is not installed: {INSTALL}")
    (tmp_path / "old").touch()
    for path in (tmp_path, tmp_path / "old"):
        with pytest.raises(UserError, match="is not an empty folder"):
            write_events(finished, path)


@pytest.mark.slow
def test_training_never_imports_it() -> None:
    code = (
        "import sys, bflp.cli.train, bflp.runtime.cell, bflp.runtime.evaluate\n"
        "assert 'torch' in sys.modules\n"
        "assert not [name for name in sys.modules if 'tensorboard' in name]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
