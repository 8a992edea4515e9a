"""One process at a time per cell."""

import errno
import fcntl

import pytest

from bflp.errors import UserError
from bflp.runtime import lock
from bflp.runtime.lock import LOOKS, is_held, only_one


def test_looking_at_a_lock_never_refuses_a_program_that_wants_it(tmp_path, monkeypatch):
    file = tmp_path / "folder" / "x.lock"
    with only_one(file, "x"):
        assert is_held(file)
    assert is_held(file) is False and is_held(tmp_path / "none") is False
    # A look that lasts longer than any: it ends while the program tries again.
    with file.open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        waits = []

        def wait(seconds):
            waits.append(seconds)
            if len(waits) == LOOKS - 1:
                fcntl.flock(look, fcntl.LOCK_UN)

        monkeypatch.setattr("bflp.runtime.lock.time.sleep", wait)
        with only_one(file, "x"):
            assert len(waits) == LOOKS - 1
    with only_one(file, "x"), pytest.raises(UserError, match="x is being trained by process"), only_one(file, "x"):
        pass


def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with only_one(tmp_path / "x.lock", "x"):
        assert is_held(tmp_path / "x.lock") is None
    assert "does not support file locks" in capsys.readouterr().err
