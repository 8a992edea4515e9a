"""Source files: what is accepted, what is refused and how, and that damage is noticed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source_arrays import LABELS, SIDE, TEST, TRAIN, flips, good

from bflp.datasets.prepared import open_prepared
from bflp.datasets.source import check_source, load_source, remarks
from bflp.errors import DataError


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
    dataset = load_source(path)
    assert dataset.train_inputs.dtype == np.uint8
    assert dataset.train_labels.dtype == np.int64
    assert dataset.input_shape == (channels or 1, SIDE, SIDE)
    assert dataset.labels == LABELS
    np.testing.assert_array_equal(dataset.train_inputs.reshape(given["train_images"].shape), given["train_images"])
    np.testing.assert_array_equal(dataset.test_labels, given["test_labels"])
    assert {"sha256": dataset.content_hash(), **check_source(path)} == dataset.summary()
    assert remarks(path) == []


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "float images": ({"train_images": np.zeros((TRAIN, SIDE, SIDE))}, ["train_images", "float64", "uint8"]),
    "signed images": ({"test_images": np.zeros((TEST, SIDE, SIDE), np.int8)}, ["test_images", "int8", "uint8"]),
    "flat images": ({"train_images": np.zeros((TRAIN, 256), np.uint8)}, ["train_images", "(12, 256)", "[N, channels"]),
    "channels last": ({"train_images": np.zeros((TRAIN, 32, 32, 7), np.uint8)}, ["channels come first", "transpose"]),
    "no images": ({"train_images": np.zeros((0, SIDE, SIDE), np.uint8)}, ["train_images", "empty"]),
    "no channels": ({"train_images": np.zeros((TRAIN, 0, SIDE, SIDE), np.uint8)}, ["train_images", "empty"]),
    "no test images": (
        {"test_images": np.zeros((0, SIDE, SIDE), np.uint8), "test_labels": np.zeros(0, np.int64)},
        ["test_images", "empty"],
    ),
    "other test shape": (
        {"test_images": np.zeros((TEST, SIDE, 20), np.uint8)},
        ["differ in shape", "(1, 16, 16)", "(1, 16, 20)"],
    ),
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
    for read in (check_source, load_source):
        with pytest.raises(DataError) as caught:
            read(path)
        text = str(caught.value)
        assert "\n" not in text
        assert all(word in text for word in [str(path), *words]), text


def test_a_missing_array_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong.npz"
    np.savez(path, **{name: value for name, value in good().items() if name != "test_labels"})
    with pytest.raises(DataError, match="has no array 'test_labels'"):
        check_source(path)
    with pytest.raises(DataError, match=r"missing\.npz: there is no such file"):
        check_source(tmp_path / "missing.npz")
    with pytest.raises(DataError, match="there is no such file"):
        check_source(tmp_path)


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
            check_source(Path(name))
        with pytest.raises(DataError, match=name):
            open_prepared(Path(name))
    assert not Path("harm-was-done").exists()


@pytest.mark.parametrize(
    "content", [b"", b"not a zip", b"PK\x03\x04", b"\x93NUMPY\x01\x00", bytes(1000), b"PK\x05\x06" + bytes(18)]
)
def test_what_is_no_npz(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "wrong.npz"
    path.write_bytes(content)
    for read in (check_source, load_source, open_prepared):
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
            check_source(cut)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_changed_bit_in_a_source_does_no_harm(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "source.npz"
    (np.savez_compressed if compressed else np.savez)(path, **good())
    content = load_source(path).content_hash()
    refused = 0
    for changed in flips(path.read_bytes()):
        path.write_bytes(changed)
        try:
            found = load_source(path).content_hash()
        except DataError as error:
            assert str(path) in str(error)
            refused += 1
        else:
            assert found == content  # a byte that says nothing of the arrays, such as a time
    assert refused > 100


def written(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_files_as_medmnist_writes_them(tmp_path: Path, channels: int) -> None:
    """Labels [N, 1], colours last, and validation arrays beside those that are used."""
    given = good(channels)
    medmnist = {name: value[:, None] for name, value in given.items() if name.endswith("labels")}
    medmnist |= {name: np.moveaxis(value, 1, -1) for name, value in given.items() if name.endswith("images")}
    unused = {"val_images": np.zeros((2, 5)), "val_labels": np.zeros(2)}
    found = load_source(written(tmp_path / "med.npz", **medmnist, **unused))
    assert found.content_hash() == load_source(written(tmp_path / "plain.npz", **given)).content_hash()
    assert remarks(tmp_path / "med.npz") == [
        "train_images and test_images had their channels last, now first",
        "not used: val_images, val_labels",
    ]


@pytest.mark.parametrize("shape", [(32, 32, 12), (3, 16, 16), (4, 5, 4), (16, 4, 4), (5, 5, 5)])
def test_what_may_be_channels_first_is_never_turned(tmp_path: Path, shape: tuple[int, ...]) -> None:
    images = np.arange(TRAIN * int(np.prod(shape))).astype(np.uint8).reshape(TRAIN, *shape)
    path = written(tmp_path / "a.npz", **{**good(), "train_images": images, "test_images": images[:TEST]})
    if shape == (32, 32, 12):
        with pytest.raises(DataError, match="channels come first"):
            load_source(path)
    else:
        np.testing.assert_array_equal(load_source(path).train_inputs, images)


# Features -----------------------------------------------------------------------------------------------------------


def table(**changes: Any) -> dict[str, Any]:
    """A small tabular source."""
    generator = np.random.default_rng(0)
    features = {f"{split}_features": generator.normal(size=(n, 5)) for split, n in (("train", TRAIN), ("test", TEST))}
    return {**{name: value for name, value in good().items() if name.endswith("labels")}, **features, **changes}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_become_float32(tmp_path: Path, dtype: Any) -> None:
    given = table(train_features=table()["train_features"].astype(dtype))
    path = written(tmp_path / "table.npz", **given)
    dataset = load_source(path)
    assert dataset.train_inputs.dtype == dataset.test_inputs.dtype == np.float32
    np.testing.assert_array_equal(dataset.train_inputs, given["train_features"].astype(np.float32))
    assert dataset.input_shape == (5,)
    assert {"sha256": dataset.content_hash(), **check_source(path)} == dataset.summary()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_features": np.zeros((TRAIN, 5), np.int64)}, ["train_features", "int64", "float32"]),
        ({"test_features": np.zeros((TEST, 5), np.float16)}, ["test_features", "float16", "float32"]),
        ({"train_features": np.zeros(TRAIN)}, ["train_features", "(12,)", "[N, features]"]),
        ({"train_features": np.zeros((TRAIN, 0))}, ["train_features", "empty"]),
        ({"test_features": np.zeros((TEST, 4))}, ["differ in shape", "(5,)", "(4,)"]),
        ({"train_features": np.zeros((TRAIN + 1, 5))}, ["train_labels", "(12,)", "(13,)"]),
    ],
)
def test_wrong_features_are_named_before_they_are_read(tmp_path: Path, changes: Any, words: list[str]) -> None:
    path = written(tmp_path / "table.npz", **table(**changes))
    for read in (check_source, load_source):
        with pytest.raises(DataError) as caught:
            read(path)
        assert all(word in str(caught.value) for word in [str(path), *words]), str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_features_must_be_finite_in_float32(tmp_path: Path, value: float) -> None:
    features = table()["test_features"]
    features[2, 3] = value
    with pytest.raises(DataError, match=r"table\.npz: test_features holds NaN, infinity or what is too large"):
        load_source(written(tmp_path / "table.npz", **table(test_features=features)))


def test_images_go_before_features(tmp_path: Path) -> None:
    path = written(tmp_path / "both.npz", **{**table(), **good()})
    assert load_source(path).input_shape == (1, SIDE, SIDE)
    assert remarks(path) == ["not used: test_features, train_features"]


# Clients ------------------------------------------------------------------------------------------------------------


def test_the_clients_of_samples_are_kept(tmp_path: Path) -> None:
    owners = np.array([7, 3] * (TRAIN // 2))
    path = written(tmp_path / "owned.npz", **good(), train_clients=owners[:, None].astype(np.uint16))
    dataset = load_source(path)
    np.testing.assert_array_equal(dataset.train_clients, owners)
    assert check_source(path)["clients"] == dataset.summary()["clients"] == 2
    assert dataset.content_hash() != load_source(written(tmp_path / "plain.npz", **good())).content_hash()


@pytest.mark.parametrize("owners", [np.zeros(TRAIN - 1, int), np.zeros(TRAIN), np.array(["a"] * TRAIN)])
def test_wrong_clients_of_samples(tmp_path: Path, owners: Any) -> None:
    with pytest.raises(DataError, match="train_clients has"):
        check_source(written(tmp_path / "owned.npz", **good(), train_clients=owners))
