"""What is known of a data set that torchvision can fetch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BuiltIn:
    """torchvision_class: name in torchvision.datasets; split: how that class tells train from test;
    folder and files: where it keeps its raw files, below the raw folder; sizes are counts of images;
    sha256: of the prepared content, where it is known."""

    title: str
    torchvision_class: str
    split: str  # "train": a boolean argument train=; "split": a text argument split=
    folder: str
    files: tuple[str, ...]
    train_size: int
    test_size: int
    augment: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""
