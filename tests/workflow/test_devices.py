"""`--resources gpu=N` with pretended GPUs: as many cells at once, each on a card that no other has meanwhile."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from small_project import Project, checked

# Cards that compute as the CPU does; each cell notes which it had, and from when to when.
PRETENDED = """


def visible_gpus() -> list[Gpu]:
    return [Gpu("cpu", "A"), Gpu("cpu", "B")]


_claimed = claimed_device


@contextlib.contextmanager
def claimed_device(wanted: str, cells_per_gpu: int) -> Iterator[tuple[str, str]]:
    folder = Path("cards")
    folder.mkdir(exist_ok=True)
    with _claimed(wanted, cells_per_gpu, visible_gpus, folder) as found:
        mine = (path.name for path in folder.glob("*.[0-9]") if f"process {os.getpid()} " in holder(path))
        place = next(mine, "none")
        began = time.time()
        yield found
    (folder / f"{os.getpid()}.json").write_text(f'["{place}", {began}, {time.time()}]')
"""


def spans(tmp_path: Path, arguments: list[str], **config: Any) -> list[tuple[str, float, float]]:
    """Run three cells; (place, from, to) of each."""
    project = Project.make(tmp_path)
    with (project.folder / "bflp/runtime/device.py").open("a", encoding="utf-8") as file:
        file.write(PRETENDED)
    project.configure(grid={"models": ["FED"], "seeds": [0, 1, 2]}, **config)
    checked(project.snakemake("--until", "train", "--cores", "3", *arguments))
    found = [json.loads(path.read_text()) for path in (project.folder / "cards").glob("*.json")]
    assert len(found) == 3
    return sorted(map(tuple, found), key=lambda span: span[1])


def overlap(spans: list[tuple[str, float, float]]) -> bool:
    return any(max(a[1], b[1]) < min(a[2], b[2]) for a, b in itertools.combinations(spans, 2))


def test_one_cell_at_a_time_on_one_card(tmp_path: Path) -> None:
    assert not overlap(spans(tmp_path, ["--resources", "gpu=1"], device="auto"))


def test_two_cells_on_two_cards(tmp_path: Path) -> None:
    found = spans(tmp_path, ["--resources", "gpu=2"], device="auto")
    assert {place for place, *_ in found} == {"A.0", "B.0"}
    for card in ("A.0", "B.0"):
        assert not overlap([span for span in found if span[0] == card])


def test_too_many_at_once_wait_for_a_card(tmp_path: Path) -> None:
    """Without a limit Snakemake starts all three at once; then the places are what keeps them apart."""
    found = spans(tmp_path, [], device="auto")
    for card in ("A.0", "B.0"):
        assert not overlap([span for span in found if span[0] == card])


@pytest.mark.parametrize(("device", "gpu"), [("auto", 1), ("cuda", 1), ("cpu", 0)])
def test_what_cells_ask_for(tmp_path: Path, device: str, gpu: int) -> None:
    """auto asks for a card: the machine that submits may have none where those that compute have."""
    project = Project.make(tmp_path)
    project.configure(grid={"models": ["FED"]}, device=device)
    done = checked(project.snakemake("-n"))
    assert f"gpu={gpu}" in done.stdout.partition("rule train")[2].partition("rule ")[0]
