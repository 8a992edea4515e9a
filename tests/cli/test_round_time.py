"""Measuring the time of a round, and files of such times that are damaged or none."""

from pathlib import Path

import fabricated_run
import pytest

from bflp.cli import figures, parser_of, round_time, round_time_table
from bflp.cli.round_time import measure
from bflp.errors import ConfigError, DataError, UserError


def test_each_round_but_the_first_is_measured(tiny):
    times = measure(tiny.assignment(tiny.job()), processes=1, rounds=2)
    assert times.keys() == {"train_seconds", "aggregation_seconds"}
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in times.values())


@pytest.mark.parametrize(
    ("sections", "error", "words"),
    [
        (
            {"training": {"learning_rate": 1e30}},
            UserError,
            r"^the training diverged in round 1, client \d: .*rate",
        ),
        ({"network": {"file": "mine.py"}}, ConfigError, r"mine\.py: build failed: ZeroDivisionError"),
    ],
)
def test_what_cannot_be_measured_is_one_line(tiny, tmp_path, monkeypatch, sections, error, words):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def build(input_shape, labels):\n    return 1 / 0\n", encoding="utf-8")
    given = ["--job", tiny.job_text("FEDAVG", None, **sections), "--data", str(tiny.data_file), "--device", "cpu"]
    given += ["--partition", str(tiny.partition_file), "--processes", "1", "--rounds", "1", "--output", "out.json"]
    with pytest.raises(error, match=words):
        round_time.run(parser_of("round-time").parse_args(given))
    assert not Path("out.json").exists()


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = fabricated_run.plan(tmp_path, samples=200, models=["FED"], seeds=[0])
    fabricated_run.config_file(plan, Path("asked.yaml"))
    return plan


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"{}", b'{"train_seconds": ["x"], "aggregation_seconds": []}', b"\xff"]
)
def test_a_damaged_measurement_is_named(config, content):
    for cell, processes in config.round_time_cells():
        file = config.paths.round_time(cell, processes)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    with pytest.raises(
        DataError, match=r"^[^\n]+/round_time/[^\n]+json is damaged \([^\n]+: delete it and run snakemake"
    ):
        round_time_table.run(parser_of("round-time-table").parse_args(["--configfile", "asked.yaml"]))


HEADER = b"dataset,partition,clients,model,aggregator,processes,seconds_per_round\n"


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,2\n",
        b"\xff",
        HEADER + b"synthetic,noniid,7,FED,N/A,1,2.0\n",
        HEADER + b"synthetic,noniid,10,FED,N/A,x\n",
    ],
)
def test_a_file_without_round_times_is_named(config, content):
    Path("other.csv").write_bytes(content)
    arguments = ["--configfile", "asked.yaml", "--round-time", "other.csv"]
    with pytest.raises(
        DataError, match=r"^other.csv does not hold round times of this config \([^\n]+\): run snakemake"
    ):
        figures.run(parser_of("figures").parse_args(arguments))
