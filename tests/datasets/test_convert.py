"""What the prepared form of arrays is, to the byte; the numeric part of preparing imports nothing of this project."""

import ast
import hashlib
import inspect

import numpy as np

from bflp.datasets import convert
from bflp.datasets.prepared import as_dataset


def test_prepared_images_keep_their_bytes() -> None:
    """The hash was taken when results were first published with it: it must stay, or all data would be other data."""
    generator = np.random.default_rng(5)
    images = [generator.integers(0, 256, (size, 18, 20), dtype=np.uint8) for size in (30, 12)]
    given = {
        "train_images": images[0],
        "train_labels": np.arange(30) % 3,
        "test_images": images[1],
        "test_labels": np.arange(12) % 3,
    }
    expected = "6b56a5b5c71f03182538bef8b4e3858ff97fc06d381ae7f2d6fb1c128208a829"
    assert as_dataset(given).content_hash() == expected


def test_the_hash_is_of_names_types_shapes_and_bytes() -> None:
    given = {
        "train_images": np.array([[[1, 2]], [[3, 4]]], np.uint8),
        "train_labels": np.array([0, 1]),
        "test_images": np.array([[[5, 6]]], np.uint8),
        "test_labels": np.array([1]),
    }
    text = b"train_images uint8 (2, 1, 1, 2)\n\x01\x02\x03\x04train_labels int64 (2,)\n" + bytes(8) + b"\x01" + bytes(7)
    text += b"test_images uint8 (1, 1, 1, 2)\n\x05\x06test_labels int64 (1,)\n\x01" + bytes(7)
    assert as_dataset(given).content_hash() == hashlib.sha256(text).hexdigest()


def test_channels_move_and_pixels_stay_in_place() -> None:
    images = np.arange(2 * 5 * 6 * 3, dtype=np.uint8).reshape(2, 5, 6, 3)
    labels = np.zeros((2, 1), np.uint8)
    given = {"train_images": images, "train_labels": labels, "test_images": images[:1], "test_labels": labels[:1]}
    found = convert.to_prepared(given)["train_images"]
    assert found.shape == (2, 3, 5, 6)
    assert all(
        found[n, c, y, x] == images[n, y, x, c] for n in range(2) for c in range(3) for y in range(5) for x in range(6)
    )
    assert found.flags.c_contiguous


def test_only_numpy_is_imported() -> None:
    """Data are prepared again when this module or one that it imports changes: a message elsewhere must not do that."""
    tree = ast.parse(inspect.getsource(convert))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not any(str(name).startswith("bflp") for name in names)
