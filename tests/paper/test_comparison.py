"""Our numbers beside the published ones, and the paper's claims, on made-up results whose outcome is known."""

import math

import pandas as pd
import pytest

from bflp.paper.claims import check_all, published_frame
from bflp.paper.comparison import compare, comparison_table, published
from bflp.reporting.latex import to_latex
from bflp.reporting.markdown import to_markdown

ROW = {"dataset": "fmnist", "partition": "iid", "clients": "10", "model": "FVBWA", "aggregator": "EAA"}


def tidy(*accuracies: float, **further: object) -> pd.DataFrame:
    """Tidy results of one row, a seed per accuracy."""
    rest = {"ece": 3.07, "nll": 0.30, "spread": 14.1, "diverged": False, **further}
    return pd.DataFrame([{**ROW, "seed": seed, "accuracy": value, **rest} for seed, value in enumerate(accuracies)])


def test_all_published_numbers_are_there() -> None:
    frame = published()
    assert len(frame) == 432 + 30
    assert not frame[["published", "published_error"]].isna().any().any()


def test_difference_is_in_published_standard_deviations_of_one_seed() -> None:
    frame = published()
    theirs = frame[(frame[list(ROW)] == list(ROW.values())).all(axis=1)].set_index("metric").to_dict("index")
    mean, error = theirs["accuracy"]["published"], theirs["accuracy"]["published_error"]
    compared = compare(tidy(mean + 1.0)).set_index("metric").to_dict("index")
    assert compared["accuracy"]["difference"] == pytest.approx(1.0 / (error * math.sqrt(5)))
    assert compared["accuracy"]["seeds"] == 1
    assert math.isnan(compared["accuracy"]["ours_error"])
    # The published error of this NLL is printed as 0.00, so half a unit of the last digit counts.
    assert theirs["nll"]["published_error"] == 0
    off = compare(tidy(mean, nll=theirs["nll"]["published"] + 0.02)).set_index("metric").to_dict("index")
    assert off["nll"]["difference"] == pytest.approx(4.0)
    assert off["nll"]["marked"]


def test_seeds_are_averaged_and_diverged_ones_left_out() -> None:
    compared = compare(tidy(90.0, 91.0)).set_index("metric")
    assert compared.loc["accuracy", "ours"] == pytest.approx(90.5)
    assert compared.loc["accuracy", "ours_error"] == pytest.approx(0.5)
    assert compare(tidy(90.0, diverged=True)).empty


def test_spread_is_compared_only_where_it_is_published() -> None:
    assert "spread" not in set(compare(tidy(90.0))["metric"])
    assert "spread" in set(compare(tidy(90.0).assign(partition="noniid"))["metric"])


def test_tables_show_mark_and_sign() -> None:
    table = comparison_table(compare(tidy(99.0)))
    assert "+" in to_markdown(table)
    assert "*" in to_markdown(table).split("Difference:")[0]
    assert "\\toprule" in to_latex(table)


def outcomes(frame: pd.DataFrame) -> list[str]:
    return [verdict.outcome for verdict in check_all(frame)]


def test_published_numbers_bear_out_every_claim() -> None:
    assert outcomes(published_frame()) == ["true"] * 5


def test_each_claim_can_fail() -> None:
    frame = published_frame()
    is_cf, is_ppa = frame["aggregator"] == "CF", frame["aggregator"] == "PPA"
    ten, hundred = frame["clients"] == "10", frame["clients"] == "100"
    worse = frame.copy()
    worse.loc[is_cf & ten, "accuracy"] = 1.0
    assert outcomes(worse)[0] == "false"
    better = frame.copy()
    better.loc[is_ppa & hundred, "accuracy"] = 99.9
    assert outcomes(better)[1] == "false"
    wider = frame.copy()
    wider.loc[is_cf, "spread"] = 1000.0
    assert outcomes(wider)[2] == "false"
    winner = frame.copy()
    winner.loc[is_cf, ["accuracy", "ece", "nll"]] = [100.0, 0.0, 0.0]
    assert outcomes(winner)[3] == "false"
    quicker = frame.copy()
    quicker.loc[is_ppa, "train_seconds"] = 1.0
    assert outcomes(quicker)[4] == "false"


def test_claims_say_when_there_is_not_enough_data() -> None:
    one_row = published_frame()
    one_row = one_row[(one_row["model"] == "FVBWA") & (one_row["aggregator"] == "EAA") & (one_row["clients"] == "10")]
    assert outcomes(one_row) == ["not enough data"] * 5
