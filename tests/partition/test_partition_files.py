"""Partition files: round trip, the counts for the eye, and what is refused."""

import csv
import itertools
import json
import re
import shutil
import zipfile
from typing import Any

import numpy as np
import pytest

from bflp.errors import DataError
from bflp.partition import files
from bflp.partition.files import Partition

DATA_HASH = "d" * 64
JOB: dict[str, Any] = {
    "dataset": "toys",
    "name": "noniid",
    "clients": 4,
    "seed": 3,
    "settings": {"strategy": "dirichlet", "alpha": 0.5, "min_samples": 2},
    "fingerprint": "f" * 16,
}
# As many samples as files.check is told about; label 3 is the largest.
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(4), [30, 20, 7, 3]))


@pytest.fixture
def partition():
    return files.make(LABELS, JOB, DATA_HASH)


def check(partition, job=JOB, data_hash=DATA_HASH, samples=60):
    files.check(partition, "here/seed3.npz", job, data_hash, samples)


def test_round_trip(partition, tmp_path):
    file = tmp_path / "new" / "folder" / "seed3.npz"
    files.save(partition, LABELS, file)
    loaded = files.load(file)
    np.testing.assert_array_equal(loaded.indices, partition.indices)
    np.testing.assert_array_equal(loaded.offsets, partition.offsets)
    assert loaded.job == {**JOB, "data": DATA_HASH}
    assert loaded.content_hash() == partition.content_hash()
    assert sorted(path.name for path in file.parent.iterdir()) == ["seed3.csv", "seed3.npz"]
    check(loaded)


def test_same_job_same_file_and_other_seed_another(partition, tmp_path):
    files.save(partition, LABELS, tmp_path / "one.npz")
    files.save(files.make(LABELS, JOB, DATA_HASH), LABELS, tmp_path / "two.npz")
    assert files.load(tmp_path / "one.npz").content_hash() == files.load(tmp_path / "two.npz").content_hash()
    assert files.make(LABELS, {**JOB, "seed": 4}, DATA_HASH).content_hash() != partition.content_hash()


def test_clients_hold_what_offsets_say():
    partition = Partition(np.array([4, 2, 0, 1, 3]), np.array([0, 2, 5]), {})
    assert partition.sizes.tolist() == [2, 3]
    assert partition.client(0).tolist() == [4, 2]
    assert partition.client(1).tolist() == [0, 1, 3]


def test_counts_in_the_csv(tmp_path):
    labels = np.array([0, 2, 2, 0, 2])
    files.save(Partition(np.array([4, 2, 0, 1, 3]), np.array([0, 2, 5]), {}), labels, tmp_path / "p.npz")
    rows = list(csv.reader((tmp_path / "p.csv").read_text().splitlines()))
    assert rows == [
        ["client", "samples", "label0", "label1", "label2"],
        ["0", "2", "0", "0", "2"],
        ["1", "3", "2", "0", "1"],
    ]


def test_more_clients_than_samples_names_the_partition():
    with pytest.raises(DataError, match="partition noniid of toys: 61 clients are more than the 60 training samples"):
        files.make(LABELS, {**JOB, "clients": 61}, DATA_HASH)


def test_a_strategy_s_error_names_the_partition():
    settings = {"strategy": "labels", "labels_per_client": 9}
    with pytest.raises(DataError, match=r"^partition noniid of toys: labels_per_client 9"):
        files.make(LABELS, {**JOB, "settings": settings}, DATA_HASH)


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("dataset", "other"),
        ("name", "iid"),
        ("clients", 5),
        ("seed", 4),
        ("settings", {**JOB["settings"], "alpha": 0.6}),
    ],
)
def test_check_refuses_a_file_of_another_job(partition, key, other):
    with pytest.raises(DataError, match=rf"here/seed3\.npz was made from another {key}: delete it"):
        check(partition, job={**JOB, key: other})


def test_check_refuses_a_file_of_other_data(partition):
    with pytest.raises(DataError, match="was made from another data"):
        check(partition, data_hash="e" * 64)


def test_check_takes_empty_clients_where_the_settings_allow_them(partition):
    allowing = {**JOB, "settings": {**JOB["settings"], "min_samples": 0}}
    offsets = np.array([0, 30, 30, 45, 60])
    check(Partition(partition.indices, offsets, {**allowing, "data": DATA_HASH}), job=allowing)
    with pytest.raises(DataError, match="does not give each"):
        check(
            Partition(partition.indices, np.array([0, 30, 15, 45, 60]), {**allowing, "data": DATA_HASH}), job=allowing
        )


def test_sizes_and_the_line_about_them():
    partition = Partition(np.arange(5), np.array([0, 0, 2, 2, 5]), {})
    assert partition.sizes.tolist() == [0, 2, 0, 3]
    assert partition.client(2).tolist() == []
    assert str(partition) == "4 clients with 0 to 3 samples, 2 of them empty"
    assert str(Partition(np.arange(5), np.array([0, 2, 5]), {})) == "2 clients with 2 to 3 samples"


# Held out ------------------------------------------------------------------------------------------------------------

HOLDING = {**JOB, "settings": {**JOB["settings"], "held_out": 0.25}}


def test_held_out_samples_are_taken_from_each_client(partition, tmp_path):
    holding = files.make(LABELS, HOLDING, DATA_HASH)
    for client in range(4):
        whole, kept = partition.client(client), holding.client(client)
        held = holding.held_out_indices[slice(*holding.held_out_offsets[[client, client + 1]])]
        assert sorted([*held, *kept]) == sorted(whole)
        assert len(held) == round(0.25 * len(whole))
    assert holding.content_hash() != partition.content_hash()
    assert str(holding).endswith(f"; {len(holding.held_out_indices)} samples held out")
    files.save(holding, LABELS, tmp_path / "p.npz")
    loaded = files.load(tmp_path / "p.npz")
    assert loaded.content_hash() == holding.content_hash()
    for name, array in holding.arrays().items():
        np.testing.assert_array_equal(loaded.arrays()[name], array)
    check(loaded, job=HOLDING)
    assert partition.held_out_indices is None


@pytest.mark.parametrize("lost", ["nothing", "a sample", "all"])
def test_check_refuses_lost_held_out_samples(lost):
    holding = files.make(LABELS, HOLDING, DATA_HASH)
    indices, offsets = holding.held_out_indices, holding.held_out_offsets
    changed = {"nothing": (indices, offsets), "a sample": (indices[:-1], offsets), "all": (None, None)}[lost]
    changed = Partition(holding.indices, holding.offsets, holding.job, *changed)
    if lost == "nothing":
        check(changed, job=HOLDING)
    else:
        with pytest.raises(DataError, match="does not give each of the 60 samples"):
            check(changed, job=HOLDING)


# Splits of the data and of a person ---------------------------------------------------------------------------------


def test_natural_clients_come_from_the_data():
    job = {**JOB, "settings": {"strategy": "natural"}}
    owners = np.arange(60) % 4 * 10
    made = files.make(LABELS, job, DATA_HASH, owners)
    assert [set(owners[made.client(client)].tolist()) for client in range(4)] == [{0}, {10}, {20}, {30}]
    check(made, job=job)
    with pytest.raises(DataError, match="partition noniid of toys: strategy natural needs `train_clients`"):
        files.make(LABELS, job, DATA_HASH)


def own_split(file, **arrays):
    np.savez(file, **arrays)
    return {**JOB, "settings": {"strategy": "file", "file": str(file), "sha256": files.split_hash(file)}}


def test_a_person_s_own_split_may_be_a_partition_file(partition, tmp_path):
    files.save(partition, LABELS, tmp_path / "p.npz")
    settings = {"strategy": "file", "file": str(tmp_path / "p.npz"), "sha256": files.split_hash(tmp_path / "p.npz")}
    made = files.make(LABELS, {**JOB, "settings": settings}, DATA_HASH)
    assert made.content_hash() == partition.content_hash()
    check(made, job={**JOB, "settings": settings})


def test_a_person_s_own_split_may_have_empty_clients(tmp_path):
    job = own_split(tmp_path / "own.npz", indices=np.arange(60, dtype=np.uint16), offsets=np.array([0, 0, 20, 40, 60]))
    made = files.make(LABELS, job, DATA_HASH)
    assert made.sizes.tolist() == [0, 20, 20, 20]
    check(made, job=job)


def test_a_person_s_own_split_is_read_only_as_it_was_when_the_job_was_made(tmp_path):
    file = tmp_path / "own.npz"
    job = own_split(file, indices=np.arange(60), offsets=np.array([0, 15, 30, 45, 60]))
    own_split(file, indices=np.arange(60)[::-1], offsets=np.array([0, 15, 30, 45, 60]))
    with pytest.raises(DataError, match=r"own\.npz was changed since"):
        files.make(LABELS, job, DATA_HASH)
    file.unlink()
    with pytest.raises(DataError, match=r"own\.npz: there is no such file \(it is the `file:` of a partition\)"):
        files.make(LABELS, job, DATA_HASH)


@pytest.mark.parametrize(
    "arrays",
    [
        {"indices": np.arange(60)},
        {"indices": np.arange(60.0), "offsets": np.array([0, 15, 30, 45, 60])},
        {"indices": np.arange(60), "offsets": np.array(4)},
        {"indices": np.array([None] * 60, object), "offsets": np.array([0, 15, 30, 45, 60])},
        {"indices": np.arange(60), "offsets": np.array([0, 45, 30, 15, 60], np.uint8)},
        {"indices": np.arange(60), "offsets": np.zeros(0, int)},
    ],
)
def test_a_wrong_split_file_is_told_in_one_line(tmp_path, arrays):
    job = own_split(tmp_path / "own.npz", **arrays)
    with pytest.raises(DataError) as caught:
        files.make(LABELS, job, DATA_HASH)
    assert "\n" not in str(caught.value)
    assert "own.npz" in str(caught.value)


OWN = """
import numpy as np

def split(labels, clients, settings, generator):
    order = generator.permutation(len(labels))
    return np.array_split(order[np.argsort(labels[order], kind="stable")], clients)
"""


def own_strategy(file, text=OWN, seed=3):
    file.write_text(text)
    return {**JOB, "seed": seed, "settings": {"strategy": "file", "file": str(file), "sha256": files.split_hash(file)}}


def test_a_strategy_of_ones_own_is_one_file(tmp_path):
    job = own_strategy(tmp_path / "own.py")
    made = files.make(LABELS, job, DATA_HASH)
    check(made, job=job)
    by_client = [LABELS[made.client(client)] for client in range(4)]
    assert all(left.max() <= right.min() for left, right in itertools.pairwise(by_client))
    assert files.make(LABELS, job, DATA_HASH).content_hash() == made.content_hash()
    other = files.make(LABELS, own_strategy(tmp_path / "own.py", seed=4), DATA_HASH)
    assert other.content_hash() != made.content_hash()
    # Another text is another job, as of an .npz.
    assert own_strategy(tmp_path / "own.py", OWN + "#")["settings"] != job["settings"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def split(labels, clients, settings, generator):\n    return 1 / 0", r"own\.py, line 2: ZeroDivisionError"),
        ("def split(labels, clients, settings, generator):\n    return [[0.5]] * 4", r"own\.py: .*whole numbers"),
        (
            "def split(labels, clients, settings, generator):\n    return [[0]] * 4",
            r"own\.py: .*must hold each of the training samples 0 to 59 once",
        ),
        (
            "def split(labels, clients, settings, generator):\n    return [[0]] * 5",
            r"own\.py: .*a list for each of 4 clients, not 5",
        ),
        ("def split(labels, clients, settings, generator):\n    return None", r"own\.py: TypeError"),
    ],
)
def test_a_wrong_strategy_of_ones_own_is_told_in_one_line(tmp_path, text, words):
    with pytest.raises(DataError, match=words) as caught:
        files.make(LABELS, own_strategy(tmp_path / "own.py", text), DATA_HASH)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("import nothing_like_it", "line 1: ModuleNotFoundError"), ("", "must define a function `split")],
)
def test_a_file_without_a_strategy_is_told_before_anything_runs(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        own_strategy(tmp_path / "own.py", text)


def _swap_for_another(indices):
    indices[5] = indices[6]


def _negative(indices):
    indices[0] = -1


def _too_large(indices):
    indices[0] = 60


@pytest.mark.parametrize("tamper", [_swap_for_another, _negative, _too_large])
def test_check_refuses_samples_that_are_missing_twice_or_unknown(partition, tamper):
    tamper(partition.indices)
    with pytest.raises(DataError, match=r"here/seed3\.npz does not give each of the 60 samples to one client"):
        check(partition)


@pytest.mark.parametrize(
    ("indices", "offsets"),
    [
        (np.arange(60), [0, 15, 30, 45, 59]),  # the last sample is lost
        (np.arange(60), [1, 15, 30, 45, 60]),  # the first
        (np.arange(60), [0, 30, 15, 45, 60]),  # backwards: twice
        (np.arange(60), [0, 30, 30, 45, 60]),  # a client without samples
        (np.arange(60), [0, 30, 60]),  # other clients
        (np.arange(60), []),
        (np.arange(59), [0, 15, 30, 45, 60]),
        (np.arange(0), [0, 0, 0, 0, 0]),
        (np.arange(60.0), [0, 15, 30, 45, 60]),  # no whole numbers
        (np.arange(60).reshape(6, 10), [0, 15, 30, 45, 60]),
    ],
)
def test_check_refuses_wrong_shapes_and_offsets(partition, indices, offsets):
    with pytest.raises(DataError, match="does not give each of the 60 samples to one client"):
        check(Partition(indices, np.array(offsets, dtype=np.int64), partition.job))


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=rf"there is no partition file {re.escape(str(tmp_path / 'p.npz'))}"):
        files.load(tmp_path / "p.npz")


def test_truncated_file(partition, tmp_path):
    file = tmp_path / "p.npz"
    files.save(partition, LABELS, file)
    content = file.read_bytes()
    for length in range(0, len(content), 41):
        file.write_bytes(content[:length])
        with pytest.raises(DataError, match=rf"{re.escape(str(file))} is broken .*: delete it"):
            files.load(file)


def test_flipped_bits_are_noticed_or_harmless(partition, tmp_path):
    """A flip in the archive's unused fields, such as a time, is harmless; nothing else may get through."""
    file = tmp_path / "p.npz"
    files.save(partition, LABELS, file)
    content = file.read_bytes()
    noticed = 0
    for position in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        try:
            loaded = files.load(file)
        except DataError as error:
            assert str(file) in str(error)
            noticed += 1
        else:
            assert loaded.content_hash() == partition.content_hash()
            assert loaded.job == partition.job
    assert noticed > len(content) / 3 / 2


def test_an_archive_of_something_else(tmp_path):
    file = tmp_path / "p.npz"
    np.savez(file, indices=np.arange(3), job=np.array(json.dumps({})))
    with pytest.raises(DataError, match="is broken"):
        files.load(file)
    np.savez(file, indices=np.arange(3), offsets=np.arange(3), job=np.array("no JSON"))
    with pytest.raises(DataError, match="is broken"):
        files.load(file)
    np.savez(file, indices=np.arange(3), offsets=np.arange(3), job=np.array('"no mapping"'))
    with pytest.raises(DataError, match="is broken"):
        files.load(file)


def test_a_member_that_is_cut_to_nothing(tmp_path):
    """As where zeros are written over its sizes in the archive's directory: the checksum of nothing is right."""
    whole, file = tmp_path / "whole.npz", tmp_path / "p.npz"
    np.savez(whole, indices=np.arange(3), job=np.array(json.dumps({})))
    for name in ("offsets.npy", "offsets"):
        shutil.copy(whole, file)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(name, b"")
        with pytest.raises(DataError, match="is broken"):
            files.load(file)
