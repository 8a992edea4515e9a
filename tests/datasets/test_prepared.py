"""Prepared files: they keep everything, are opened memory-mapped, and damage is noticed."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source_arrays import LABELS, SIDE, TEST, TRAIN, flips, good

from bflp.datasets import prepared as arrays
from bflp.errors import DataError

NAMES = ("train_images", "train_labels", "test_images", "test_labels")


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "mine.npz"
    arrays.save(arrays.as_dataset(good(channels=2)), path)
    return path


def test_prepared_files_keep_everything_and_are_mapped(prepared: Path) -> None:
    dataset, given = arrays.open_prepared(prepared), good(channels=2)
    for name in NAMES:
        np.testing.assert_array_equal(dataset.arrays()[name], given[name])
    assert isinstance(dataset.train_inputs, np.memmap)
    assert dataset.train_inputs.mode == "r"
    assert dataset.train_labels.dtype == np.int64


def test_the_summary_describes_the_content(prepared: Path) -> None:
    summary = arrays.read_summary(prepared)
    dataset = arrays.open_prepared(prepared)
    assert summary == {
        "sha256": dataset.content_hash(),
        "input_shape": [2, SIDE, SIDE],
        "labels": LABELS,
        "train_size": TRAIN,
        "test_size": TEST,
    }


def test_the_hash_is_of_the_content_alone(tmp_path: Path, prepared: Path) -> None:
    again = tmp_path / "again.npz"
    arrays.save(arrays.as_dataset(good(channels=2)), again)
    assert arrays.read_summary(again) == arrays.read_summary(prepared)
    # The same bytes in another shape, and the same images with two labels swapped, are other data.
    other = good(channels=2)
    other["train_images"] = other["train_images"].reshape(TRAIN, 1, 2 * SIDE, SIDE)
    swapped = good(channels=2)
    swapped["train_labels"][[0, 1]] = swapped["train_labels"][[1, 0]]
    hashes = {arrays.as_dataset(value).content_hash() for value in (good(channels=2), other, swapped)}
    assert len(hashes) == 3


def test_a_changed_bit_in_a_prepared_file_is_noticed(prepared: Path) -> None:
    stated = arrays.read_summary(prepared)["sha256"]
    refused = differing = 0
    for changed in flips(prepared.read_bytes()):
        prepared.write_bytes(changed)
        try:
            # As a training program does it: the content's hash against the one in the summary.
            found = arrays.open_prepared(prepared).content_hash()
        except DataError as error:
            assert "delete it and prepare the data set again" in str(error)
            refused += 1
        else:
            differing += found != stated
    assert refused > 20
    assert differing > 100


def test_a_truncated_prepared_file_is_noticed(prepared: Path) -> None:
    whole = prepared.read_bytes()
    for length in range(0, len(whole), 151):
        prepared.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"mine\.npz is broken.*prepare the data set again"):
            arrays.open_prepared(prepared)


def test_prepared_files_of_other_kinds_are_refused(prepared: Path) -> None:
    np.savez_compressed(prepared, **good(channels=2))
    with pytest.raises(DataError, match="compressed"):
        arrays.open_prepared(prepared)
    np.savez(prepared, **{**good(channels=2), "train_images": np.asfortranarray(good(channels=2)["train_images"])})
    with pytest.raises(DataError, match="layout"):
        arrays.open_prepared(prepared)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, good()["train_labels"], version=(2, 0))
    with zipfile.ZipFile(prepared, "w") as archive:
        for name in NAMES:
            archive.writestr(f"{name}.npy", buffer.getvalue())
    with pytest.raises(DataError, match="npy version"):
        arrays.open_prepared(prepared)
    prepared.unlink()
    with pytest.raises(DataError, match="prepare the data set first"):
        arrays.open_prepared(prepared)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"sha256": 3}',
        json.dumps({"sha256": "a", "labels": 3}),
        json.dumps({"sha256": "a", "labels": 3, "input_shape": 3, "train_size": 1, "test_size": 1}),
        json.dumps({"sha256": "a", "labels": "3", "input_shape": [1], "train_size": 1, "test_size": 1}),
    ],
)
def test_a_broken_summary_is_named(prepared: Path, text: str) -> None:
    arrays.summary_file(prepared).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"mine\.json is broken: delete it"):
        arrays.read_summary(prepared)


def test_a_missing_summary_is_named(prepared: Path) -> None:
    arrays.summary_file(prepared).unlink()
    with pytest.raises(DataError, match=r"there is no .*mine\.json: prepare the data set first"):
        arrays.read_summary(prepared)


def test_writing_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.npz"

    def full_disk(*arguments: Any, **more: Any) -> None:
        arguments[0].write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left"):
        arrays.save(arrays.as_dataset(good()), path)
    assert list(tmp_path.iterdir()) == []


def test_features_and_clients_are_kept(tmp_path: Path) -> None:
    given = {
        "train_features": np.arange(12, dtype=np.float32).reshape(4, 3) / 7,
        "train_labels": np.array([0, 1, 0, 1]),
        "test_features": np.ones((2, 3), np.float32),
        "test_labels": np.array([1, 0]),
        "train_clients": np.array([5, 5, 9, 5]),
    }
    path = tmp_path / "table.npz"
    arrays.save(arrays.as_dataset(given), path)
    dataset = arrays.open_prepared(path)
    for name, value in given.items():
        np.testing.assert_array_equal(dataset.arrays()[name], value)
    assert list(dataset.arrays()) == list(given)
    assert isinstance(dataset.train_inputs, np.memmap)
    assert arrays.read_summary(path) == dataset.summary()


def test_a_clients_images_are_read_without_the_others(tmp_path: Path) -> None:
    """Peak memory of taking some of 64 MB of images is that of what was taken."""
    images = np.zeros((1024, 1, 256, 256), np.uint8)
    labels = np.arange(1024) % 2
    path = tmp_path / "large.npz"
    arrays.save(arrays.Dataset(images, labels, images[:1], labels[:1]), path)
    del images
    tracemalloc.start()
    try:
        taken = arrays.open_prepared(path).train_inputs[np.arange(0, 1024, 64)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken.nbytes == 16 * 256 * 256
    assert peak < 2 * taken.nbytes
