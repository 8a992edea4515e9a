"""A person's own algorithm that fails while it trains: one line that says when and where, in any process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_federation import SIZES, TinyFederation

from bflp.runtime.errors import HopelessError

LOCAL = "def local(model, server, client, facts, settings):\n"
REPORT = "def report(model, trained, server, client, facts, settings):\n"
SERVER = "def server(model, reports, server, facts, settings):\n"


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (SERVER + "    return model + server['velocity'], {}\n", r"round 1: .*mine\.py, line 2: KeyError: 'velocity'$"),
        (
            SERVER + "    return model[1:], {}\n",
            r"round 1: .*mine\.py: TypeError: `server` must return a model of shape \(\d+,\) and a mapping",
        ),
        (SERVER + "    return model\n", r"round 1: .*mine\.py: TypeError: `server` must return a model"),
        (
            "BROADCAST = ('typo',)\n" + SERVER + "    return model, {'velocity': model}\n",
            r"round 1: .*mine\.py: ValueError: the state that `server` returns lacks 'typo', which BROADCAST names$",
        ),
        (
            "from bflp.engine.local import Local\n" + LOCAL + "    return Local(pull=0.1)\n",
            r"round 1, client \d: .*mine\.py: ValueError: Local: a pull needs an anchor$",
        ),
        (LOCAL + "    return 3\n", r"round 1, client \d: .*mine\.py: TypeError: `local` must return a Local$"),
        (REPORT + "    return {}\n", r"round 1, client \d: .*mine\.py: TypeError: `report` must return two mappings"),
        (
            REPORT + "    assert facts.round < 2\n    return {}, {}\n",
            r"round 2, client \d: .*mine\.py, line 2: AssertionError: $",
        ),
    ],
)
def test_one_line(source: str, message: str, processes: int, tiny: TinyFederation, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    method = {"algorithm": {"file": str(tmp_path / "mine.py")}}
    job = tiny.job("MINE", None, models={"MINE": method})
    with pytest.raises(HopelessError, match=message) as caught:
        tiny.run(job, processes=processes)
    assert "\n" not in str(caught.value)
    ended = json.loads((tmp_path / "progress/cell.json").read_text(encoding="utf-8"))
    assert (ended["state"], ended["reason"], ended["hopeless"]) == ("failed", str(caught.value), True)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    "source",
    [
        # Tensors that share memory.
        SERVER + "    new = reports[0].vector.clone()\n    return new, {'last': new, 'part': new[:3]}\n",
        # An empty state is a state: what was remembered is forgotten.
        LOCAL
        + "    assert bool(client) == (facts.round == 2)\n    return Local()\n"
        + REPORT
        + "    return {}, {'seen': model} if facts.round == 1 else {}\n",
        # How many rounds there will be is nobody's business: cells of more rounds go on from those of fewer.
        LOCAL + "    assert facts.settings.rounds == 0\n    return Local()\n",
    ],
)
def test_what_is_no_mistake(source: str, processes: int, tiny: TinyFederation, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"from bflp.engine.local import Local\n{source}", encoding="utf-8")
    method = {"algorithm": {"file": str(tmp_path / "mine.py")}}
    everyone = {len(SIZES): {"fraction": 1.0, "rounds": 3}}
    result, _, _ = tiny.run(tiny.job("MINE", None, models={"MINE": method}, setups=everyone), processes=processes)
    assert len(result["rounds"]) == 3


@pytest.mark.parametrize("how", ["requires_grad_()", "bfloat16()"])
def test_tensors_that_cannot_be_sent_are_one_line(how: str, tiny: TinyFederation, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{REPORT}    return {{'x': model.clone().{how}}}, {{}}\n", encoding="utf-8")
    method = {"algorithm": {"file": str(tmp_path / "mine.py")}}
    with pytest.raises(HopelessError, match=r"tensors \(detached, not bfloat16\)"):
        tiny.run(tiny.job("MINE", None, models={"MINE": method}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("kl_weight=0.0", r"needs a kl_weight above 0 \(is 0\.0\)$"),
        ("sent=model", "takes no sent$"),
        ("after_step=print", "takes no after_step$"),
    ],
)
def test_what_ivon_cannot_do(given: str, message: str, tiny: TinyFederation, tmp_path: Path) -> None:
    source = f"from bflp.engine.local import Local\n{LOCAL}    return Local({given})\n"
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    method = {"algorithm": {"file": str(tmp_path / "mine.py")}, "posterior": "ivon"}
    with pytest.raises(HopelessError, match=f"round 1, client .*ValueError: Local: posterior ivon {message}"):
        tiny.run(tiny.job("MINE", "EAA", models={"MINE": method}))


def test_any_other_error_is_written_down_too(tiny: TinyFederation, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it does not look as if the cell had been killed."""
    monkeypatch.setattr("bflp.engine.round.aggregation_weights", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tiny.run(tiny.job("METHOD", None, models={"METHOD": {"algorithm": "fedavgm"}}))
    ended = json.loads((tiny.folder / "progress/cell.json").read_text(encoding="utf-8"))
    assert (ended["state"], ended["hopeless"]) == ("failed", False)
    assert "ZeroDivisionError" in ended["reason"]
