"""Source files and prepared files: what is accepted, what is refused and how, and that damage is noticed."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bflp.datasets import prepared as arrays
from bflp.errors import DataError

TRAIN, TEST, SIDE, LABELS = 12, 6, 16, 3


def good(channels: int | None = None) -> dict[str, Any]:
    """The arrays of a small source file, gray without a channel axis unless `channels` is given."""
    generator = np.random.default_rng(0)
    result: dict[str, Any] = {}
    for split, count in (("train", TRAIN), ("test", TEST)):
        shape = (count, SIDE, SIDE) if channels is None else (count, channels, SIDE, SIDE)
        result[f"{split}_images"] = generator.integers(0, 256, shape, dtype=np.uint8)
        result[f"{split}_labels"] = np.arange(count) % LABELS
    return result


def labels(*values: Any, dtype: Any = None) -> Any:
    """TRAIN labels: `values`, then as many of the last as are missing."""
    return np.array([*values, *[values[-1]] * (TRAIN - len(values))], dtype=dtype)


@pytest.mark.parametrize("channels", [None, 1, 3, 7])
@pytest.mark.parametrize("label_type", [np.int64, np.int32, np.uint8, ">i4"])
def test_every_allowed_form_becomes_the_prepared_form(tmp_path: Path, channels: int | None, label_type: Any) -> None:
    given = good(channels)
    given["train_labels"] = given["train_labels"].astype(label_type)
    path = tmp_path / "source.npz"
    np.savez_compressed(path, **given)
    dataset = arrays.load_source(path)
    assert dataset.train_images.dtype == np.uint8
    assert dataset.train_labels.dtype == np.int64
    assert dataset.image_shape == (channels or 1, SIDE, SIDE)
    assert dataset.labels == LABELS
    np.testing.assert_array_equal(dataset.train_images.reshape(given["train_images"].shape), given["train_images"])
    np.testing.assert_array_equal(dataset.test_labels, given["test_labels"])
    assert arrays.check_source(path) == TRAIN


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "float images": ({"train_images": np.zeros((TRAIN, SIDE, SIDE))}, ["train_images", "float64", "uint8"]),
    "signed images": ({"test_images": np.zeros((TEST, SIDE, SIDE), np.int8)}, ["test_images", "int8", "uint8"]),
    "flat images": ({"train_images": np.zeros((TRAIN, 256), np.uint8)}, ["train_images", "(12, 256)", "[N, channels"]),
    "channels last": ({"train_images": np.zeros((TRAIN, 32, 32, 3), np.uint8)}, ["channels come first", "transpose"]),
    "small images": ({"train_images": np.zeros((TRAIN, 8, 8), np.uint8)}, ["8 x 8", "at least 16 x 16"]),
    "no images": ({"train_images": np.zeros((0, SIDE, SIDE), np.uint8)}, ["train_images", "empty"]),
    "no channels": ({"train_images": np.zeros((TRAIN, 0, SIDE, SIDE), np.uint8)}, ["train_images", "empty"]),
    "no test images": (
        {"test_images": np.zeros((0, SIDE, SIDE), np.uint8), "test_labels": np.zeros(0, np.int64)},
        ["test_images", "empty"],
    ),
    "other test shape": ({"test_images": np.zeros((TEST, SIDE, 20), np.uint8)}, ["differ in shape", "(16, 20)"]),
    "too few labels": ({"train_labels": np.arange(5) % 3}, ["train_labels", "(5,)", "(12,)"]),
    "one-hot labels": ({"train_labels": np.eye(TRAIN, 3, dtype=np.int64)}, ["train_labels", "(12, 3)"]),
    "float labels": ({"train_labels": labels(0.0, 1.0, 2.0)}, ["train_labels", "float64", "whole-number"]),
    "NaN labels": ({"train_labels": labels(0.0, 1.0, np.nan)}, ["train_labels", "float64", "whole-number"]),
    "boolean labels": ({"train_labels": labels(True, False)}, ["train_labels", "bool", "whole-number"]),
    "text labels": ({"train_labels": labels("cat", "dog")}, ["train_labels", "whole-number"]),
    "object labels": ({"train_labels": labels(0, 1, dtype=object)}, ["train_labels", "object"]),
    "object images": ({"train_images": np.array([None] * TRAIN, object)}, ["train_images", "object"]),
    "negative labels": ({"train_labels": labels(-1, 0, 1)}, ["train_labels", "-1", "count from 0"]),
    "gaps": ({"train_labels": labels(0, 1, 3), "test_labels": np.zeros(TEST, np.int64)}, ["label 2", "without gaps"]),
    "labels from 1": ({"train_labels": labels(1, 2), "test_labels": np.ones(TEST, np.int64)}, ["label 0", "gaps"]),
    "large gap": ({"train_labels": labels(0, 998, 999)}, ["up to 999", "no sample has label 1 "]),
    "huge labels": ({"train_labels": labels(0, 2**62)}, ["train_labels", "no sample has label 1 "]),
    "one label": ({"train_labels": labels(0), "test_labels": np.zeros(TEST, np.int64)}, ["one label only"]),
    "new test label": ({"test_labels": np.full(TEST, 3)}, ["test_labels", "3", "ends at 2"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_source_files_are_named_with_what_is_wrong(tmp_path: Path, case: str) -> None:
    changes, words = WRONG[case]
    path = tmp_path / "wrong.npz"
    np.savez(path, **{**good(), **changes})
    for read in (arrays.check_source, arrays.load_source):
        with pytest.raises(DataError) as caught:
            read(path)
        text = str(caught.value)
        assert "\n" not in text
        assert all(word in text for word in [str(path), *words]), text


def test_a_missing_array_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong.npz"
    np.savez(path, **{name: value for name, value in good().items() if name != "test_labels"})
    with pytest.raises(DataError, match="has no array 'test_labels'"):
        arrays.check_source(path)
    with pytest.raises(DataError, match=r"missing\.npz: there is no such file"):
        arrays.check_source(tmp_path / "missing.npz")
    with pytest.raises(DataError, match="there is no such file"):
        arrays.check_source(tmp_path)


class Harmful:
    """Would leave a file behind if it were unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("harm-was-done"),)


def test_nothing_is_ever_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harmful = np.array([Harmful()] * TRAIN, dtype=object)
    np.savez("objects.npz", allow_pickle=True, **{**good(), "train_labels": harmful})
    Path("pickle.npz").write_bytes(pickle.dumps(Harmful()))
    np.save("array.npy", harmful, allow_pickle=True)
    Path("array.npy").rename("array.npz")
    for name in ("objects.npz", "pickle.npz", "array.npz"):
        with pytest.raises(DataError, match=name):
            arrays.check_source(Path(name))
        with pytest.raises(DataError, match=name):
            arrays.open_prepared(Path(name))
    assert not Path("harm-was-done").exists()


@pytest.mark.parametrize(
    "content", [b"", b"not a zip", b"PK\x03\x04", b"\x93NUMPY\x01\x00", bytes(1000), b"PK\x05\x06" + bytes(18)]
)
def test_what_is_no_npz(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "wrong.npz"
    path.write_bytes(content)
    for read in (arrays.check_source, arrays.load_source, arrays.open_prepared):
        with pytest.raises(DataError, match=r"wrong\.npz"):
            read(path)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_truncated_source_is_noticed(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "whole.npz"
    (np.savez_compressed if compressed else np.savez)(path, **good())
    whole = path.read_bytes()
    cut = tmp_path / "cut.npz"
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"cut\.npz"):
            arrays.check_source(cut)


def flips(whole: bytes) -> list[bytes]:
    """The file with one bit changed, at many places: all of its last and first headers, and every 61st byte."""
    places = {*range(0, len(whole), 61), *range(len(whole) - 300, len(whole)), *range(180)}
    return [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in sorted(places)]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_changed_bit_in_a_source_does_no_harm(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "source.npz"
    (np.savez_compressed if compressed else np.savez)(path, **good())
    content = arrays.load_source(path).content_hash()
    refused = 0
    for changed in flips(path.read_bytes()):
        path.write_bytes(changed)
        try:
            found = arrays.load_source(path).content_hash()
        except DataError as error:
            assert str(path) in str(error)
            refused += 1
        else:
            assert found == content  # a byte that says nothing of the arrays, such as a time
    assert refused > 100


# Prepared files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "mine.npz"
    arrays.save(arrays.as_dataset(good(channels=2)), path)
    return path


def test_prepared_files_keep_everything_and_are_mapped(prepared: Path) -> None:
    dataset, given = arrays.open_prepared(prepared), good(channels=2)
    for name in arrays.NAMES:
        np.testing.assert_array_equal(getattr(dataset, name), given[name])
    assert isinstance(dataset.train_images, np.memmap)
    assert dataset.train_images.mode == "r"
    assert dataset.train_labels.dtype == np.int64


def test_the_summary_describes_the_content(prepared: Path) -> None:
    summary = arrays.read_summary(prepared)
    dataset = arrays.open_prepared(prepared)
    assert summary == {
        "sha256": dataset.content_hash(),
        "image_shape": [2, SIDE, SIDE],
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
        for name in arrays.NAMES:
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
        json.dumps({"sha256": "a", "labels": 3, "image_shape": 3, "train_size": 1, "test_size": 1}),
        json.dumps({"sha256": "a", "labels": "3", "image_shape": [1], "train_size": 1, "test_size": 1}),
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
