"""Our numbers beside the published ones, and papers' claims, on made-up results whose outcome is known."""

import argparse
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from bflp.cli import comparison as command
from bflp.grid.cell import NO_AGGREGATOR, Cell
from bflp.grid.plan import Plan
from bflp.paper.claims import check_all
from bflp.paper.comparison import compare, comparison_table, left_out, published, summary
from bflp.paper.comparison_figure import draw
from bflp.paper.full_scale import FOLDER
from bflp.paper.sources import CONFIGS, KEYS, PUBLISHED, TEXT, planned, sources
from bflp.reporting.latex import to_latex
from bflp.reporting.markdown import to_markdown
from bflp.settings.schema import Settings, load

ROW = {"dataset": "fmnist", "partition": "iid", "clients": "10", "model": "FVBWA", "aggregator": "EAA"}
SCAFFOLD = Cell("cifar10", "noniid", "10", "SCAFFOLD", "none", 0)


def tidy(*accuracies: float, **further: object) -> pd.DataFrame:
    """Tidy results of one row, a seed per accuracy."""
    rest = {"ece": 3.07, "nll": 0.30, "spread": 14.1, "diverged": False, **further}
    return pd.DataFrame([{**ROW, "seed": seed, "accuracy": value, **rest} for seed, value in enumerate(accuracies)])


def compared(frame: pd.DataFrame, source: str = "bflp") -> pd.DataFrame:
    """Compared, all rows with the set-up of a source."""
    cells = [Cell.parse("/".join([*names, "seed0"])) for names in frame[KEYS].drop_duplicates().to_numpy()]
    return compare(frame, [(cell, sources()[source].settings(cell)) for cell in cells])


def test_all_published_numbers_are_there() -> None:
    frame = published()
    assert {"bflp": 432 + 30, "flower": 60, "niid_bench": 24}.items() <= frame[
        "source"
    ].value_counts().to_dict().items()
    assert not frame["published"].isna().any()


def test_difference_is_in_published_standard_deviations_of_one_seed() -> None:
    frame = sources()["bflp"].numbers
    theirs = frame[(frame[list(ROW)] == list(ROW.values())).all(axis=1)].set_index("metric").to_dict("index")
    mean, error = theirs["accuracy"]["published"], theirs["accuracy"]["error"]
    found = compared(tidy(mean + 1.0)).set_index("metric").to_dict("index")
    assert found["accuracy"]["difference"] == pytest.approx(1.0 / (error * math.sqrt(5)))
    assert found["accuracy"]["unit"] == "deviations"
    assert found["accuracy"]["seeds"] == 1
    assert math.isnan(found["accuracy"]["ours_error"])
    # The published error of this NLL is printed as 0.00, so half a unit of the last digit counts.
    assert theirs["nll"]["error"] == 0
    off = compared(tidy(mean, nll=theirs["nll"]["published"] + 0.02)).set_index("metric").to_dict("index")
    assert off["nll"]["difference"] == pytest.approx(4.0)
    assert off["nll"]["marked"]


def test_several_sources_of_one_number_stand_together() -> None:
    """FedAvg on CIFAR-10, Dirichlet(0.5), ten clients: three groups report 66.02, 63.4 and 68.2."""
    frame = tidy(65.4).assign(dataset="cifar10", partition="noniid", model="FEDAVG", aggregator="none")
    found = compared(frame).query("metric == 'accuracy'").set_index("source")
    assert found["published"].to_dict() == {"bflp": 66.02, "flower": 63.4, "niid_bench": 68.2}
    assert (found["sources_low"] == 63.4).all() and (found["sources_high"] == 68.2).all()
    assert found["unit"].to_dict() == {"bflp": "deviations", "flower": "points", "niid_bench": "points"}
    assert found["difference"]["flower"] == pytest.approx(2.0)
    assert found["difference"]["niid_bench"] == pytest.approx(-2.8)
    assert not found["marked"].any()
    assert (found["differing"] == "").all()
    text = to_markdown(comparison_table(compared(frame)))
    assert "+2.0 pt" in text and "-2.8 pt" in text and "63.4 to 68.2" in text


def test_another_set_up_is_named_and_not_counted_as_the_same() -> None:
    frame = tidy(60.0).assign(**dict(zip(KEYS, [*SCAFFOLD.block, *SCAFFOLD.row], strict=True)))
    settings = sources()["niid_bench"].settings(SCAFFOLD)
    settings["training"]["local_epochs"] = 5
    found = compare(frame, [(SCAFFOLD, settings)])
    theirs = "its program corrects the parameters after the momentum step, and divides by the number of steps"
    assert set(found["differing"]) == {f"training.local_epochs: 5 here, 10 there; {theirs}"}
    assert "(a) training.local\\_epochs" not in to_markdown(comparison_table(found))
    assert "(a) training.local_epochs: 5 here, 10 there" in to_markdown(comparison_table(found))
    assert summary(found) == "with another set-up 0 of 0 beyond 3 deviations, 2 without a deviation"
    # Of two seeds with different settings both are named.
    both = compare(frame, [(SCAFFOLD, settings), (SCAFFOLD, {**settings, "weights": "equal"})])
    assert set(both["differing"]) == {
        f"training.local_epochs: 5 here, 10 there; {theirs}; weights: equal here, data there"
    }


def test_how_final_models_were_evaluated_and_on_which_data_are_part_of_the_set_up() -> None:
    theirs = load([CONFIGS / "bflp.yaml"])
    cell = Cell.parse("fmnist/iid/10/FVBWA/EAA/seed0")
    assert sources()["bflp"].differing(cell, planned(Plan(theirs), cell)) == []
    plain = theirs.model_dump(mode="json", exclude_unset=True)
    plain["evaluation"] |= {"ece_bins": 3, "final": {"monte_carlo_samples": 1}}
    plain["datasets"] = {"fmnist": {"source": "examples/data/fmnist-mini.npz"}}
    assert sources()["bflp"].differing(cell, planned(Plan(Settings.parse(plain)), cell)) == [
        "final.ece_bins: 3 here, 100 there",
        "final.monte_carlo_samples: 1 here, 10 there",
        "data: examples/data/fmnist-mini.npz here, unset there",
    ]


def test_seeds_are_averaged_and_rows_with_a_diverged_one_left_out() -> None:
    found = compared(tidy(90.0, 91.0)).set_index("metric")
    assert found.loc["accuracy", "ours"] == pytest.approx(90.5)
    assert found.loc["accuracy", "ours_error"] == pytest.approx(0.5)
    assert compared(tidy(90.0, diverged=True)).empty
    both = pd.concat([tidy(90.0, 91.0).assign(diverged=[False, True]), tidy(90.0).assign(aggregator="PPA")])
    assert set(compared(both)["aggregator"]) == {"PPA"}
    assert left_out(both) == "Left out: FVBWA EAA in fmnist/iid/10, where it diverged with seed 1."
    assert left_out(both.assign(model="MINE")) == left_out(tidy(90.0)) == ""
    assert comparison_table(compared(both), left_out(both)).caption.endswith("diverged with seed 1.")


def test_spread_is_compared_only_where_it_is_published() -> None:
    assert "spread" not in set(compared(tidy(90.0))["metric"])
    assert "spread" in set(compared(tidy(90.0).assign(partition="noniid"))["metric"])


def test_tables_show_mark_and_sign() -> None:
    table = comparison_table(compared(tidy(99.0)))
    assert "+" in to_markdown(table)
    assert "*" in to_markdown(table).split("Difference:")[0]
    assert "\\toprule" in to_latex(table)


def test_figure_has_a_panel_for_each_source_of_a_block() -> None:
    deterministic = tidy(89.0).assign(model="FEDAVG", aggregator="none")
    frame = pd.concat([tidy(90.0), deterministic])
    found = compared(frame)
    drawn = draw(found[found["source"].isin(["bflp", "flower"])])
    assert [axes.get_title() for axes in drawn.axes] == [
        "Fashion-MNIST, IID, 10 clients: BFL-P",
        "Fashion-MNIST, IID, 10 clients: Flower, in points",
    ]
    assert [[label.get_text() for label in axes.get_yticklabels()] for axes in drawn.axes] == [
        ["FEDAVG", "FVBWA EAA"],
        ["FEDAVG"],
    ]


def test_command_compares_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(FOLDER / "project", tmp_path, dirs_exist_ok=True)
    command.run(argparse.Namespace(archive=tmp_path, partial=False))
    printed = capsys.readouterr().out
    assert "(a) posterior.log_variance.enforce: project here, clamp there; aggregation: exact here" in printed
    assert {file.name for file in tmp_path.glob("c*.*")} == {
        *(f"comparison.{kind}" for kind in ("csv", "md", "tex", "html", "pdf", "svg")),
        "claims.md",
    }
    claims = (tmp_path / "claims.md").read_text(encoding="utf-8")
    assert claims.startswith("BFL-P:\n\n- **") and "NIID-Bench" not in claims


def published_frame(source: str) -> pd.DataFrame:
    """A source's published numbers as tidy results. Times: local training with ten processes, where published."""
    wide = sources()[source].numbers.pivot_table(index=KEYS, columns="metric", values="published").reset_index()
    wide = wide.assign(seed=0, diverged=False)
    file = PUBLISHED / source / "round_time.csv"
    if not file.exists():
        return wide
    times = pd.read_csv(file, keep_default_na=False, dtype=TEXT)
    times = times[times["processes"] == 10].assign(aggregation_seconds=0.0)
    times = times.rename(columns={"seconds_per_round": "train_seconds"})
    return wide.merge(times[[*KEYS, "train_seconds", "aggregation_seconds"]], on=KEYS, how="left")


def outcomes(frame: pd.DataFrame, source: str = "bflp") -> list[str]:
    return [verdict.outcome for verdict in check_all(source, frame)]


def test_published_numbers_bear_out_every_claim() -> None:
    assert outcomes(published_frame("bflp")) == ["true"] * 5
    assert outcomes(published_frame("niid_bench"), "niid_bench") == ["true"]
    assert outcomes(published_frame("flower"), "flower") == []


def test_each_claim_can_fail() -> None:
    frame = published_frame("bflp")
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
    prox = published_frame("niid_bench")
    prox.loc[prox["model"].str.startswith("FEDPROX"), "accuracy"] = 99.0
    assert outcomes(prox, "niid_bench") == ["false"]


# Of a block with FED and FEDAVG and the five rules of FVBWA: these, unless a case says otherwise.
FIRST = {"accuracy": 70.0, "spread": 1.0, "train_seconds": 1.0}
OF_RULES: dict[str, dict[str, float]] = {
    "FED": {},
    "FEDAVG": {},
    "CF": {"accuracy": 80.0},
    "AALV": {"accuracy": 81.0, "spread": 2.0},
    "GAA": {"accuracy": 82.0, "spread": 3.0},
    "EAA": {"accuracy": 79.0, "spread": 5.0},
    "PPA": {"accuracy": 78.0, "spread": 6.0, "train_seconds": 1.2},
}


@pytest.mark.parametrize(
    ("claim", "clients", "changes", "outcome"),
    [
        (0, "10", {"FEDAVG": {"accuracy": 79.9}}, "true"),
        (0, "10", {"FEDAVG": {"accuracy": 80.0}}, "false"),  # no better than the better of the two
        (1, "100", {}, "true"),
        (1, "100", {"EAA": {"accuracy": 81.5}}, "false"),  # below one of the low-spread rules only
        (1, "10", {}, "not enough data"),
        (2, "10", {}, "true"),
        (2, "10", {"PPA": {"spread": 2.9}}, "false"),  # EAA alone is above GAA
        (2, "10", {"PPA": {"spread": 3.0}}, "false"),
        (4, "10", {}, "true"),
        (4, "10", {"PPA": {"train_seconds": 1.05}}, "false"),  # by less than a tenth
        (4, "10", {"CF": {"train_seconds": 0.5}, "EAA": {"train_seconds": 2.0}}, "false"),  # than the mean, 1.125
    ],
)
def test_claims_turn_where_they_say(
    claim: int, clients: str, changes: dict[str, dict[str, float]], outcome: str
) -> None:
    names = {**dict.fromkeys(OF_RULES, ("FVBWA",)), "FED": ("FED", NO_AGGREGATOR), "FEDAVG": ("FEDAVG", NO_AGGREGATOR)}
    lines = []
    for row, numbers in OF_RULES.items():
        model, aggregator = (*names[row], row)[:2]
        found = {**FIRST, **numbers, **changes.get(row, {})}
        further = {"ece": 100 - found["accuracy"], "nll": 1 - found["accuracy"] / 100, "aggregation_seconds": 0.0}
        cell = {**ROW, "clients": clients, "model": model, "aggregator": aggregator, "seed": 0, "diverged": False}
        lines.append({**cell, **found, **further})
    assert outcomes(pd.DataFrame(lines))[claim] == outcome


@pytest.mark.parametrize(
    ("seeds", "outcome"), [({0}, "true"), ({0, 1}, "false"), ({1}, "false"), ({2}, "not enough data")]
)
def test_claims_compare_rows_over_the_seeds_that_they_share(seeds: set[int], outcome: str) -> None:
    """Seed 1 is easier for all of them. By all seeds FEDAVG would be ahead of AALV, which lacks it, with seed 0."""
    accuracies = {"FED": {1: 66.5}, "FEDAVG": {0: 61.0, 1: 66.0}, "AALV": {seed: 62.0 + 4 * seed for seed in seeds}}
    frames = []
    for name, of_seed in accuracies.items():
        row = {"model": name, "aggregator": "none"} if name != "AALV" else {"model": "FVBWA", "aggregator": name}
        for seed, accuracy in of_seed.items():
            frames.append(tidy(accuracy, ece=100 - accuracy, nll=100 - accuracy, **row).assign(seed=seed))
    assert outcomes(pd.concat(frames))[0] == outcome


@pytest.mark.parametrize(("seed", "outcome"), [(0, "true"), (1, "not enough data")])
def test_an_order_of_rows_is_that_of_the_seeds_that_all_have(seed: int, outcome: str) -> None:
    """CF's second seed, in which its spread is the largest, has no other beside it."""
    spreads = {"CF": 1.0, "AALV": 2.0, "GAA": 3.0, "PPA": 5.0}
    found = [tidy(80.0, aggregator=rule, spread=spread).assign(seed=0) for rule, spread in spreads.items()]
    found[0]["seed"] = seed
    found.append(tidy(80.0, aggregator="CF", spread=100.0).assign(seed=2))
    assert outcomes(pd.concat(found))[2] == outcome


def test_claims_are_about_the_rows_of_their_paper() -> None:
    """A row of another paper that is best everywhere does not touch them."""
    frame = published_frame("bflp")
    best = frame[frame["model"] == "FEDAVG"].assign(model="SCAFFOLD", accuracy=100.0, ece=0.0, nll=0.0)
    assert outcomes(pd.concat([frame, best])) == ["true"] * 5


def test_claims_leave_out_rows_that_diverged_with_some_seed() -> None:
    frame = published_frame("bflp")
    survivor = frame[frame["model"] == "FVBWA"].assign(accuracy=1.0)
    rest = frame[frame["model"] != "FVBWA"]
    assert outcomes(pd.concat([rest, survivor]))[0] == "false"
    gone = survivor.assign(seed=1, diverged=True, accuracy=None)
    assert outcomes(pd.concat([rest, survivor, gone])) == outcomes(rest)


def test_claims_say_when_there_is_not_enough_data() -> None:
    one_row = published_frame("bflp")
    one_row = one_row[(one_row["model"] == "FVBWA") & (one_row["aggregator"] == "EAA") & (one_row["clients"] == "10")]
    assert outcomes(one_row) == ["not enough data"] * 5
