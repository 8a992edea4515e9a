"""How rows look."""

from __future__ import annotations

import made_up_grid

from bflp.reporting.figures import style

RULES = (*made_up_grid.RULES, *(f"OWN{index}" for index in range(20)))


def styles(**methods):
    rows = [(model, rule) for model, (_, rules) in methods.items() for rule in rules or ["none"]]
    return style.row_styles(rows, {model: weights for model, (weights, _) in methods.items()})


def test_rows_of_a_panel_differ_without_colour():
    found = styles(
        A=("data", ()), B=("data", ()), C=("data", ()), D=("data", RULES), E=("data", made_up_grid.RULES[::-1])
    )
    assert len({(str(look.dash), look.marker) for look in found.values()}) == len(found) == 33
    assert len({look.label for look in found.values()}) == 33


def test_a_rule_has_one_colour():
    found = styles(D=("data", ("EAA", "CF")), E=("data", ("CF", "EAA")), F=("equal", ("CF",)))
    assert found["D", "CF"].colour == found["E", "CF"].colour == found["F", "CF"].colour != found["D", "EAA"].colour


def test_a_rule_looks_the_same_in_every_grid():
    one, other = styles(D=("data", ("CF",))), styles(A=("equal", ()), D=("data", ("EAA", "OWN", "CF")))
    assert one["D", "CF"] == other["D", "CF"]


def test_models_with_other_weights_share_a_style():
    found = styles(FED=("equal", ()), FEDAVG=("data", ()), FVBA=("equal", ("CF",)), FVBWA=("data", ("CF",)))
    assert found["FED", "none"] == found["FEDAVG", "none"] and found["FED", "none"].label == "FED / FEDAVG"
    assert found["FVBA", "CF"] == found["FVBWA", "CF"] and found["FVBA", "CF"].label == "CF"


def test_many_rounds_are_thinned_and_keep_both_ends():
    points = style.thinned(500)
    assert len(points) == 250 and points[0] == 0 and points[-1] == 499
    assert style.thinned(50).tolist() == list(range(50))
