"""The statistics through the real workflow: on demand, in the report; and what a change of their settings costs."""

from __future__ import annotations

from small_project import Project, checked

MADE = ("tables/statistics.html", "tables/statistics_blocks.html", "figures/differences.svg", "figures/ranks.svg")


def table(project: Project, name: str) -> str:
    return (project.results / f"tables/{name}.md").read_text(encoding="utf-8")


def test_statistics_are_made_on_demand_and_shown_in_the_report(finished: Project) -> None:
    assert not (finished.results / MADE[0]).exists()
    checked(finished.snakemake("statistics"))
    assert "6 rows in 1 block of 1 seed: differences to FEDAVG, paired by seed" in table(finished, "statistics")
    assert finished.planned("statistics") == {}
    checked(finished.snakemake("all", "statistics", "--report", "report.html"))
    report = (finished.folder / "report.html").read_text(encoding="utf-8")
    assert [name for name in (*MADE, "tables/results2.html") if name not in report] == []
    finished.configure(statistics={"reference": "FVBA EAA"})
    assert finished.planned("statistics") == {"statistics": 1}
    assert finished.planned() == {"overview": 1}  # its page of settings


def test_marks_in_tables_train_nothing_and_follow_the_reference(finished: Project) -> None:
    assert "†" not in table(finished, "results2")
    for statistics, reference in (({}, "FEDAVG"), ({"reference": "FVBA EAA"}, "FVBA EAA")):
        finished.configure(tables={"mark_differences": True}, statistics=statistics)
        planned = finished.planned()
        assert planned["tables"] == 1 and not {"prepare", "partition", "train", "evaluate"} & planned.keys()
        checked(finished.snakemake("--until", "tables"))
        assert f"†: the 95% t interval of the difference to {reference}, paired by seed" in table(finished, "results2")
