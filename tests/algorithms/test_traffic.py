"""What clients send and receive in a round, counted in what the program sends, is what docs/methods.md says."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from algorithms.toy import Toy

from bflp import algorithms
from bflp.engine.local import Local
from bflp.settings.algorithms import algorithm_module

PAGE = Path(__file__).resolve().parents[2] / "docs/methods.md"


def documented() -> dict[str, list[str]]:
    """Of each algorithm its up and down, in models."""
    found: dict[str, list[str]] = {}
    column = 0
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if "traffic" in cells:
            column = cells.index("traffic")
        elif column and line.startswith("| `"):
            found |= {name: cells[column].split(" / ") for name in re.findall(r"`(\w+)`", cells[1])}
    return found


def method(name: str) -> tuple[dict[str, Any], str | None]:
    """The first posterior that an algorithm is defined for, of all weights, and a rule where it takes one."""
    module = algorithm_module({"name": name})
    kind = getattr(module, "KINDS", ("none",))[0]
    posterior = {"kind": kind, **({"variational": "all"} if kind == "variational" else {})}
    rule = None if kind == "none" or hasattr(module, "server") else "AALV"
    return {"posterior": posterior, "algorithm": name, **({"aggregators": [rule]} if rule else {})}, rule


# Whose traffic depends on the numbers: tests/algorithms/test_fedsparse.py.
SPARSE = ("fedsparse",)


@pytest.mark.parametrize("name", [name for name in algorithms.names() if name not in SPARSE])
def test_as_documented(tiny, name):
    entry, rule = method(name)
    job = tiny.job("METHOD", rule, models={"METHOD": entry}, setups={4: {"fraction": 0.75, "rounds": 2}})
    result, *_ = tiny.run(job)
    size = sum(math.prod(shape) for shape in result["network"]["tensors"].values())
    # Three clients; the second round, since in the first there is no state.
    sent = [result["traffic"][f"{way}_bytes"][1] / (3 * 4 * size) for way in ("up", "down")]
    assert sent == [float(number) for number in documented()[name]]


def test_all_clients_of_a_round_count(tiny):
    one, half = (
        tiny.run(tiny.job("FEDAVG", None, setups={4: {"fraction": fraction, "rounds": 1}}), str(fraction))[0]
        for fraction in (0.25, 0.5)
    )
    assert half["traffic"] == {way: [2 * number for number in sent] for way, sent in one["traffic"].items()}


def test_clients_see_of_the_servers_state_what_they_are_sent():
    seen = []

    def local(model, server, *rest):
        seen.append(sorted(server))
        return Local()

    def server(model, reports, server, *rest):
        return model, {"known": model, "hidden": model}

    toy = Toy(SimpleNamespace(BROADCAST=("known",), local=local, server=server))
    toy.rounds(2)
    assert seen == [[], [], [], ["known"], ["known"], ["known"]]
    assert sorted(toy.server.state) == ["hidden", "known"]
