"""What figures show of a block: means, errors, where curves end, and what is missing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import made_up_grid
import numpy as np
import pytest

from bflp.grid.plan import Plan
from bflp.reporting.figures.block import Block, grouped, weights_of
from bflp.settings.schema import load

PROJECT = Path(__file__).resolve().parents[2]
ROW = ("FVBA", "EAA")


def records(*curves, diverged=(), **evaluation):
    """A record per seed with these accuracies of rounds 1, 2, ..."""
    return {
        seed: SimpleNamespace(
            result=SimpleNamespace(
                rounds=[SimpleNamespace(round=number, accuracy=value) for number, value in enumerate(curve, start=1)],
                diverged=SimpleNamespace(round=9) if seed in diverged else None,
                environment=SimpleNamespace(curve_ece_bins=10),
            ),
            evaluation=None
            if seed in diverged
            else made_up_grid.Evaluated(
                final={"accuracy": curve[-1], "ood_auroc": None}, clients={"accuracy_gini": curve[-1] / 100}
            ),
        )
        for seed, curve in enumerate(curves)
    }


def block(found, seeds=3):
    return Block("title", [ROW], range(seeds), {"FVBA": "equal"}, [ROW], {ROW: found})


def test_curves_are_means_over_the_seeds_that_have_run():
    curve = block(records([1.0, 10.0], [3.0, 20.0])).curve(ROW, "accuracy")
    assert curve.rounds.tolist() == [1, 2] and curve.mean.tolist() == [2.0, 15.0]
    # Of 1 and 3: deviation sqrt(2), over sqrt(2).
    np.testing.assert_allclose(curve.error, [1.0, 5.0])
    one = block(records([1.0, 10.0])).curve(ROW, "accuracy")
    assert one.mean.tolist() == [1.0, 10.0] and np.isnan(one.error).all()


def test_curve_ends_where_the_first_seed_diverged():
    some = block(records([1.0, 2.0, 3.0], [1.0, 2.0], [1.0, 2.0, 3.0], diverged=[1]))
    assert some.curve(ROW, "accuracy").rounds.tolist() == [1, 2]
    assert math.isnan(some.final(ROW, "accuracy")[0])
    assert some.gaps(some.rows) == ["Diverged: FVBA EAA (1/3)"]


def test_a_cell_that_diverged_in_its_first_round_has_no_curve():
    assert not len(block(records([1.0], [], diverged=[1])).curve(ROW, "accuracy").rounds)


def test_curves_have_the_rounds_that_all_seeds_have():
    curve = block(records([1.0, None, 3.0], [None, 2.0, 5.0])).curve(ROW, "accuracy")
    assert curve.rounds.tolist() == [3] and curve.mean.tolist() == [4.0]


def test_final_numbers():
    some = block(records([0.0, 4.0], [0.0, 6.0]))
    assert some.final(ROW, "accuracy") == (5.0, pytest.approx(1.0))
    assert some.final(ROW, "clients_accuracy_gini") == (pytest.approx(0.05), pytest.approx(0.01))
    assert math.isnan(some.final(ROW, "ood_auroc")[0])
    assert math.isnan(block({}).final(ROW, "accuracy")[0])


def test_gaps():
    assert block(records([1.0])).gaps([ROW]) == ["Incomplete: FVBA EAA (1/3 seeds)"]
    assert block({}).gaps([ROW]) == ["No results yet."]
    other = replace(block(records([1.0], [1.0], [1.0])), rows=[ROW, ("FED", "none")])
    assert other.gaps(other.rows) == ["No results yet: FED"]


def test_groups_hold_every_row_whatever_its_name():
    methods = {"NEW": ("data", ()), "FED": ("equal", ()), "OTHER": ("equal", ("CF", "X")), "FVBWA": ("data", ("CF",))}
    plan = made_up_grid.plan(methods)
    groups = grouped(plan.rows, weights_of(plan))
    assert groups == [
        ("FED, OTHER (equal weights)", [("FED", "none"), ("OTHER", "CF"), ("OTHER", "X")]),
        ("NEW, FVBWA (weights by data size)", [("NEW", "none"), ("FVBWA", "CF")]),
    ]
    with pytest.raises(ValueError):  # a way to weigh that has no title must not drop its rows
        grouped([("NEW", "none")], {"NEW": "size"})


def test_rows_of_a_sweep_that_chooses_weigh_too():
    """Round times are measured of the rows that are trained, tables show the sweep."""
    plan = Plan(load([PROJECT / "config.yaml", PROJECT / "examples" / "sweep.yaml"]))
    assert plan.rows != plan.shown_rows
    assert weights_of(plan).keys() == {model for model, _ in (*plan.rows, *plan.shown_rows)}
    groups = grouped(list(dict.fromkeys(cell.row for cell, _ in plan.round_time_cells())), weights_of(plan))
    assert [row for _, rows in groups for row in rows] == plan.rows


def test_label_counts_are_of_the_partitions_own_seed():
    files = [PROJECT / "config.yaml"]
    for config, seed in (({}, 0), ({"partitions": {"iid": {"seed": 7}}}, 7)):
        plan = Plan(load(files, config))
        assert plan.partition_file(plan.cells[0]).stem == f"seed{seed}"
        assert Block.planned(plan, plan.blocks()[0], {}).label_seed == seed


def test_planned_block_has_what_the_plan_says():
    found = made_up_grid.block(made_up_grid.plan(setups={"100-half": 100}, seeds=[4, 7]))
    assert found.title == "synthetic, non-IID, 100-half (100 clients)"
    assert (len(found.rows), len(found.posterior_rows), found.label_seed) == (12, 10, 4)
    assert found.weights == {"FED": "equal", "FEDAVG": "data", "FVBA": "equal", "FVBWA": "data"}
