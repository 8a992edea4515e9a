"""What things are called."""

from __future__ import annotations

import pytest

from bflp.reporting.titles import aggregator_title, block_title, clients_title, row_title


@pytest.mark.parametrize(
    ("setup", "number", "title"),
    [
        ("10", 10, "10 clients"),
        ("1", 1, "1 client"),
        ("10", None, "10 clients"),
        ("100-half", 100, "100-half (100 clients)"),
        ("alone", 1, "alone (1 client)"),
        ("100-half", None, "100-half"),
    ],
)
def test_setups(setup: str, number: int | None, title: str) -> None:
    assert clients_title(setup, number) == title
    assert block_title("cifar10", "noniid", setup, number) == f"CIFAR-10, non-IID, {title}"
    assert block_title("mine", "0.1", setup, number) == f"mine, 0.1, {title}"


def test_rows() -> None:
    assert (row_title(("FED", "none")), row_title(("FVBA", "CF"))) == ("FED", "FVBA CF")
    assert (aggregator_title("none"), aggregator_title("CF")) == ("N/A", "CF")
