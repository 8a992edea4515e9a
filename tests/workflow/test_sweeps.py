"""Sweeps through the real workflow: trained row by row, chosen when results are merged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from small_project import Project, checked, one_error

from bflp.results.frame import read_csv

ROWS = {"LR-0.01", "LR-0.1"}


def configure(project: Project, choose: str, rates: Sequence[float] = (0.01, 0.1), held_out: float = 0.2) -> None:
    swept = {"training.learning_rate": list(rates), "choose": choose}
    project.configure(
        grid={"models": ["FED", "LR"], "aggregators": []},
        models={"LR": {"base": "FEDAVG", "sweep": swept}},
        partitions={"iid": {"strategy": "iid", "held_out": held_out}},
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The sweep, run to the end."""
    project = Project.make(tmp_path_factory.mktemp("sweep"))
    configure(project, "nll")
    checked(project.snakemake())
    return project


def test_one_row_is_shown_and_all_are_kept(project: Project) -> None:
    table = (project.results / "tables/results2.md").read_text(encoding="utf-8")
    assert [line.split("|")[2].strip() for line in table.splitlines()[2:4]] == ["FED", "LR"]
    merged = read_csv(project.results / "results.csv").set_index("model")
    assert merged.index.tolist() == ["FED", "LR-0.01", "LR-0.1"]
    best = merged.loc[sorted(ROWS), "held_out_nll"].idxmin()
    assert merged.index[merged["chosen"] == "yes"].tolist() == [best]
    chosen = (project.results / "tables/chosen.md").read_text(encoding="utf-8").splitlines()
    assert [line.split("|")[2].strip() for line in chosen if "**" in line] == [best]
    assert (project.results / "figures/tiny/iid/2/sweep.svg").exists()
    assert "3 cells: 3 done" in checked(project.bflp("status", "--configfile", "small.yaml")).stdout
    checked(project.bflp("verify", "--configfile", "small.yaml"))


def test_what_a_change_costs(project: Project) -> None:
    configure(project, "accuracy")
    planned = project.planned()
    assert {"merge", "tables", "draw"} <= planned.keys()
    assert not {"prepare", "partition", "train", "evaluate"} & planned.keys()
    configure(project, "nll", rates=[0.01, 0.1, 0.2])
    assert project.planned_cells() == {"LR-0.2/none/seed0"}
    configure(project, "nll", held_out=0.3)
    assert project.planned_cells() == {f"{row}/none/seed0" for row in ("FED", *ROWS)}


def test_a_row_is_trained_by_hand_and_what_is_wrong_is_refused(project: Project) -> None:
    configure(project, "nll")
    assert "is done, see" in checked(project.train("LR-0.1/none")).stderr
    assert "is not in the grid" in one_error(project.train("LR/none"))
    configure(project, "nll", held_out=0.0)
    assert "models.LR.sweep.choose: needs samples to choose by" in one_error(project.train("LR-0.1/none"))
    done = project.snakemake("-n")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if "models.LR.sweep.choose" in line]
    assert len(told) == 1 and "error: " in told[0]
