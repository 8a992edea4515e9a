"""Checkpoint files: what is saved comes back; damaged ones are set aside, those of other identities stay untouched."""

import errno

import pytest
import torch

from bflp.engine.work import Broadcast
from bflp.runtime.checkpoint import Checkpoints, Progress
from bflp.runtime.kept import CheckpointRounds, checkpoint_round

IDENTITY = "0123456789abcdef-12"
FILE = f"{IDENTITY}.checkpoint.safetensors"


def progress(round_, size=40):
    model = torch.randn(size, generator=torch.Generator().manual_seed(round_))
    rounds = [{"round": number, "accuracy": 10.1 * number, "spread": None} for number in range(1, round_ + 1)]
    server = Broadcast(model, {"velocity": model[:3] + 1, "steps": torch.tensor(7.0, dtype=torch.float64)})
    return Progress(round_, server, rounds, {"train_seconds": [0.1] * round_, "total_seconds": 1 / 3}, [1])


def assert_same(found, expected):
    assert found is not None
    for one, other in ((found.server.model, expected.server.model), *pairs(found, expected)):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype
    assert found.history() == expected.history()


def pairs(found, expected):
    assert found.server.state.keys() == expected.server.state.keys()
    return [(found.server.state[name], expected.server.state[name]) for name in expected.server.state]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_round_trip(tmp_path):
    saved = progress(3)
    Checkpoints(tmp_path / "kept", IDENTITY).save(saved)
    assert_same(Checkpoints(tmp_path / "kept", IDENTITY).newest(), saved)


def test_no_folder_and_no_checkpoint(tmp_path):
    assert Checkpoints(tmp_path / "kept", IDENTITY).newest() is None


def test_the_newest_replaces_the_one_before(tmp_path):
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    for round_ in (8, 9, 10):
        checkpoints.save(progress(round_))
    assert names(tmp_path) == [FILE]
    assert_same(checkpoints.newest(), progress(10))


def test_a_damaged_one_is_set_aside(tmp_path, capsys):
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    checkpoints.save(progress(2))
    file = tmp_path / FILE
    file.write_bytes(file.read_bytes()[:-1])
    assert checkpoints.newest() is None
    assert names(tmp_path) == [f"{IDENTITY}.checkpoint.damaged"]
    assert f"warning: the checkpoint {file} is damaged" in capsys.readouterr().err


def test_one_that_cannot_be_opened_is_not_damaged(tmp_path):
    """As without permission, or with too many files open, which a test cannot do to root: links in a circle."""
    file = tmp_path / FILE
    file.symlink_to(FILE)
    with pytest.raises(OSError, match=FILE) as refused:
        Checkpoints(tmp_path, IDENTITY).newest()
    assert refused.value.errno == errno.ELOOP
    assert names(tmp_path) == [FILE]


def test_any_truncation_and_any_wrong_byte_is_noticed(tmp_path):
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    checkpoints.save(progress(2, size=5))
    file = tmp_path / FILE
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


def test_one_of_another_identity_is_neither_used_nor_touched(tmp_path):
    Checkpoints(tmp_path, "fedcba-12").save(progress(2))
    before = (tmp_path / "fedcba-12.checkpoint.safetensors").read_bytes()
    own = Checkpoints(tmp_path, IDENTITY)
    assert own.newest() is None
    own.save(progress(5))
    assert_same(own.newest(), progress(5))
    assert (tmp_path / "fedcba-12.checkpoint.safetensors").read_bytes() == before


def test_a_longer_run_goes_on_from_a_shorter_one_and_not_the_other_way(tmp_path):
    Checkpoints(tmp_path, "0123456789abcdef-8").save(progress(8))
    assert_same(Checkpoints(tmp_path, IDENTITY).newest(), progress(8))
    Checkpoints(tmp_path, IDENTITY).save(progress(11))
    assert_same(Checkpoints(tmp_path, IDENTITY).newest(), progress(11))
    assert_same(Checkpoints(tmp_path, "0123456789abcdef-9").newest(), progress(8))
    assert Checkpoints(tmp_path, "0123456789abcdef-3").newest() is None


def test_the_round_can_be_read_without_torch(tmp_path):
    Checkpoints(tmp_path, IDENTITY).save(progress(7))
    Checkpoints(tmp_path, "0123456789abcdef-5").save(progress(5))
    rounds = CheckpointRounds(tmp_path)
    asked = [IDENTITY, "0123456789abcdef-7", "0123456789abcdef-6", "0123456789abcdef-4", "fedcba-12"]
    assert [rounds.of(identity) for identity in asked] == [7, 7, 5, 0, 0]


def test_one_of_another_format_is_not_used(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("bflp.runtime.checkpoint.FORMAT", "0")
        Checkpoints(tmp_path, IDENTITY).save(progress(2))
    assert Checkpoints(tmp_path, IDENTITY).newest() is None
    assert names(tmp_path) == [FILE]


@pytest.mark.parametrize(
    "head", [b"", b"text", bytes([255] * 8), (2**40).to_bytes(8, "little"), bytes(8), b"[" * 90_000]
)
def test_the_round_of_a_damaged_checkpoint_is_0(head, tmp_path):
    """Said of all cells at once: one damaged file must not take the others down."""
    file = tmp_path / "a-5.checkpoint.safetensors"
    file.write_bytes(head)
    assert checkpoint_round(file) == 0
    file.write_bytes((100_000).to_bytes(8, "little") + b"[" * 100_000)
    assert checkpoint_round(file) == 0
