"""The data sets that torchvision can fetch. Imports nothing heavy: the Snakefile reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BuiltIn:
    """What is known of a data set before it is fetched.

    torchvision_class: name in torchvision.datasets; split: how that class tells train from test; folder and files:
    where it keeps its raw files, below the raw folder; sizes are counts of images; image_shape: (C, H, W); labels: how
    many there are; sha256: of the prepared content, where it is known.
    """

    title: str
    torchvision_class: str
    split: str = "train"  # a boolean argument train=; or "split": a text argument split=
    folder: str = ""
    files: tuple[str, ...]
    train_size: int
    test_size: int
    image_shape: tuple[int, int, int]
    labels: int = 10
    augment: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""


def _like_mnist(title: str, name: str, sha256: str = "") -> BuiltIn:
    return BuiltIn(
        title=title,
        torchvision_class=name,
        folder=f"{name}/raw",
        files=(
            "train-images-idx3-ubyte.gz",
            "train-labels-idx1-ubyte.gz",
            "t10k-images-idx3-ubyte.gz",
            "t10k-labels-idx1-ubyte.gz",
        ),
        train_size=60000,
        test_size=10000,
        image_shape=(1, 28, 28),
        sha256=sha256,
    )


def _cifar(labels: int) -> BuiltIn:
    return BuiltIn(
        title=f"CIFAR-{labels}",
        torchvision_class=f"CIFAR{labels}",
        files=(f"cifar-{labels}-python.tar.gz",),
        train_size=50000,
        test_size=10000,
        image_shape=(3, 32, 32),
        labels=labels,
        augment={"crop_padding": 4, "flip_probability": 0.5},
    )


BUILT_IN: dict[str, BuiltIn] = {
    "fmnist": _like_mnist(
        "Fashion-MNIST", "FashionMNIST", "4a8eeb895efc64e1f4476d70d28895ee99bd8190dfd46d0350449800cfde93ce"
    ),
    "cifar10": _cifar(10),
    "svhn": BuiltIn(
        title="SVHN",
        torchvision_class="SVHN",
        split="split",
        files=("train_32x32.mat", "test_32x32.mat"),
        train_size=73257,
        test_size=26032,
        image_shape=(3, 32, 32),
    ),
    "mnist": _like_mnist("MNIST", "MNIST"),
    "kmnist": _like_mnist("KMNIST", "KMNIST"),
    "cifar100": _cifar(100),
}


def title(name: str) -> str:
    """The name that tables and plots show."""
    return BUILT_IN[name].title if name in BUILT_IN else name
