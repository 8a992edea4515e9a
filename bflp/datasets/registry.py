"""The data sets that torchvision can fetch, one line each. Imports nothing heavy: the Snakefile reads it."""

from __future__ import annotations

from bflp.datasets.built_in import BuiltIn

_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_CROP_AND_FLIP = {"crop_padding": 4, "flip_probability": 0.5}

BUILT_IN: dict[str, BuiltIn] = {
    "fmnist": BuiltIn(
        "Fashion-MNIST",
        "FashionMNIST",
        "train",
        "FashionMNIST/raw",
        _IDX,
        60000,
        10000,
        sha256="4a8eeb895efc64e1f4476d70d28895ee99bd8190dfd46d0350449800cfde93ce",
    ),
    "cifar10": BuiltIn("CIFAR-10", "CIFAR10", "train", "", ("cifar-10-python.tar.gz",), 50000, 10000, _CROP_AND_FLIP),
    "svhn": BuiltIn("SVHN", "SVHN", "split", "", ("train_32x32.mat", "test_32x32.mat"), 73257, 26032),
    "mnist": BuiltIn("MNIST", "MNIST", "train", "MNIST/raw", _IDX, 60000, 10000),
    "kmnist": BuiltIn("KMNIST", "KMNIST", "train", "KMNIST/raw", _IDX, 60000, 10000),
    "cifar100": BuiltIn(
        "CIFAR-100", "CIFAR100", "train", "", ("cifar-100-python.tar.gz",), 50000, 10000, _CROP_AND_FLIP
    ),
}


def title(name: str) -> str:
    """The name that tables and plots show."""
    return BUILT_IN[name].title if name in BUILT_IN else name
