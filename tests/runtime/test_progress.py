"""How far a cell is: the file that others read, and the lines of the log."""

import json

import pytest

from bflp.runtime import progress


def read(file):
    return {key: value for key, value in json.loads(file.read_text()).items() if key != "updated"}


def test_the_file_is_written_at_once_and_then_once_a_second(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    file = tmp_path / "progress" / "x.json"
    same = {"state": "running", "rounds": 10, "device": "cpu"}
    with progress.RoundProgress("x", 10, 2, file, device="cpu") as shown:
        assert read(file) == {**same, "round": 2, "seconds_per_round": None, "accuracy": None}
        now[0] += 0.5
        shown.update(3, 50.0)
        assert read(file)["round"] == 2
        now[0] += 0.5
        shown.update(4, None)
        assert read(file) == {**same, "round": 4, "seconds_per_round": 0.5, "accuracy": 50.0}
        file.unlink()
        file.parent.rmdir()
        file.parent.write_text("no folder any more: that must not end the training")
        now[0] += 2
        shown.update(5, 60.0)
        file.parent.unlink()
    shown.end("done")
    assert (read(file)["state"], read(file)["round"], read(file)["accuracy"]) == ("done", 5, 60.0)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"state": "failed"}', "\xff"])
def test_what_is_no_progress_file_says_nothing(tmp_path, text):
    file = tmp_path / "x.json"
    assert progress.read(file) == {}
    file.write_bytes(text.encode("latin-1"))
    assert progress.read(file) == {}


def test_the_log_gets_a_line_a_minute(capsys, monkeypatch, tmp_path):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.RoundProgress("x", 100, 0, tmp_path / "x.json") as shown:
        for round_ in range(1, 101):
            now[0] += 6
            shown.update(round_, 50 + round_ / 10)
    lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == "x: starts, 100 of 100 rounds to do"
    assert lines[1] == "x: round 10/100, 6.00 s/round, 9.0 min left, accuracy 51.00%"
    assert lines[-1] == "x: done, 100 rounds, accuracy 60.00%" and len(lines) == 11
