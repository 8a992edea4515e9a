"""Checkpoint files: what is saved comes back, the newest two are kept, damaged and foreign ones are not used."""

import torch

from bflp.runtime.checkpoint import Checkpoints, Progress

IDENTITY = '{"cell":"this one"}'


def progress(round_, size=40):
    model = torch.randn(size, generator=torch.Generator().manual_seed(round_))
    rounds = [{"round": number, "accuracy": 10.1 * number, "spread": None} for number in range(1, round_ + 1)]
    return Progress(round_, model, rounds, {"train_seconds": [0.1] * round_, "total_seconds": 1 / 3}, [1])


def assert_same(found, expected):
    assert found is not None
    assert torch.equal(found.model, expected.model)
    assert found.model.dtype == expected.model.dtype
    assert found.history() == expected.history()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_round_trip(tmp_path):
    saved = progress(3)
    Checkpoints(tmp_path / "cell", IDENTITY).save(saved)
    assert_same(Checkpoints(tmp_path / "cell", IDENTITY).newest(), saved)


def test_no_folder_and_no_checkpoint(tmp_path):
    assert Checkpoints(tmp_path / "cell", IDENTITY).newest() is None


def test_the_newest_two_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    for round_ in (8, 9, 10, 11):  # the names must sort by number, not as text
        checkpoints.save(progress(round_))
    assert [int(name.removeprefix("round").split(".")[0]) for name in names(tmp_path)] == [10, 11]
    assert_same(checkpoints.newest(), progress(11))


def test_a_damaged_one_is_set_aside_and_the_one_before_is_used(tmp_path, capsys):
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    checkpoints.save(progress(1))
    checkpoints.save(progress(2))
    newest = tmp_path / "round00000002.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert_same(checkpoints.newest(), progress(1))
    assert names(tmp_path) == ["round00000001.safetensors", "round00000002.damaged"]
    assert f"warning: the checkpoint {newest} is damaged" in capsys.readouterr().err


def test_both_damaged_means_the_start(tmp_path):
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    for round_ in (1, 2):
        checkpoints.save(progress(round_))
    for file in tmp_path.iterdir():
        file.write_bytes(b"")
    assert checkpoints.newest() is None


def test_any_truncation_and_any_wrong_byte_is_noticed(tmp_path):
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    checkpoints.save(progress(2, size=5))
    file = tmp_path / "round00000002.safetensors"
    whole = file.read_bytes()
    damaged = [whole[:length] for length in range(0, len(whole), 5)]
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        damaged.append(bytes(flipped))
    for content in damaged:
        file.write_bytes(content)
        found = checkpoints.newest()
        if found is not None:
            # A space more in the header's padding, or the like: what is read must be what was saved.
            assert_same(found, progress(2, size=5))


def test_one_of_another_job_is_not_used(tmp_path, capsys):
    Checkpoints(tmp_path, IDENTITY).save(progress(2))
    assert Checkpoints(tmp_path, IDENTITY.replace("this", "that")).newest() is None
    assert "is of another settings, code or data: not used" in capsys.readouterr().err


def test_an_older_one_of_this_job_is_used_although_a_newer_one_is_foreign(tmp_path):
    Checkpoints(tmp_path, "other").save(progress(5))
    Checkpoints(tmp_path, IDENTITY).save(progress(2))
    assert_same(Checkpoints(tmp_path, IDENTITY).newest(), progress(2))


def test_one_of_another_format_is_not_used(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr("bflp.runtime.checkpoint.FORMAT", "0")
        Checkpoints(tmp_path, IDENTITY).save(progress(2))
    assert Checkpoints(tmp_path, IDENTITY).newest() is None
    assert "is of another format" in capsys.readouterr().err


def test_remove_takes_empty_folders_along_and_leaves_others(tmp_path):
    (tmp_path / "results" / "cells").mkdir(parents=True)
    folder = tmp_path / "results" / "checkpoints" / "a" / "b" / "seed0"
    other = tmp_path / "results" / "checkpoints" / "a" / "c" / "seed0"
    for each in (folder, other):
        Checkpoints(each, IDENTITY).save(progress(1))
    Checkpoints(folder, IDENTITY).remove()
    assert names(tmp_path / "results" / "checkpoints" / "a") == ["c"]
    Checkpoints(other, IDENTITY).remove()
    assert names(tmp_path / "results") == ["cells"]
