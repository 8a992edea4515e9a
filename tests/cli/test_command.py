"""The `bflp` command: its verbs, its common arguments, and its errors of one line."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from snakemake.cli import parse_config
from snakemake.utils import update_config

import bflp
from bflp.cli import parser_of, partition, train, verbs
from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import config_values, settings_of
from bflp.errors import ConfigError, UserError

PROJECT = Path(__file__).resolve().parents[2]
RUN = PROJECT / "workflow" / "scripts" / "run.py"
CONFIG = {
    "grid": {
        "datasets": ["fmnist"],
        "partitions": ["iid"],
        "clients": [10],
        "models": ["FEDAVG"],
        "aggregators": [],
        "seeds": [0],
    },
    "partitions": {"iid": {"strategy": "iid"}},
    "setups": {10: {"fraction": 1.0, "rounds": 3}},
    "processes": 4,
}


def program(*words: str, cwd: Path = PROJECT, code: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(["-c", code] if code else [str(RUN)]), *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1 and done.stdout == "", done
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_the_help_lists_every_verb_and_imports_nothing_slow() -> None:
    heavy = ("numpy", "torch", "pandas", "pydantic", "matplotlib", "yaml")
    code = f"import sys; from bflp.cli import main; main(['--help']); assert not set({heavy}) & set(sys.modules)"
    done = program(code=code)
    assert done.returncode == 0, done.stderr
    summaries = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  "))
    for verb in ("status", "why", "tables", "figures", "overview", "verify", "train", "evaluate", "merge", "prepare"):
        assert summaries[verb].endswith(".")
    assert max(map(len, done.stdout.splitlines())) < 110
    assert program("-h").stdout == program().stdout == done.stdout


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_has_a_help_text(verb: str) -> None:
    text = parser_of(verb).format_help()
    assert text.startswith(f"usage: bflp {verb} ")
    assert len(text.splitlines()) > 4


def test_a_verb_that_is_not_known() -> None:
    assert "bflp has no verb 'staus' - did you mean 'status'?" in one_line(program("staus"))
    assert "`bflp --help` lists all" in one_line(program("../x"))
    # Helper modules beside the verbs are not verbs.
    assert "has no verb" in one_line(program("common"))


def test_an_argument_that_is_not_known() -> None:
    done = program("status", "--al")
    assert done.returncode == 2 and "Traceback" not in done.stderr and "unrecognized arguments: --al" in done.stderr


def test_libraries_take_one_thread_before_a_verb_is_imported() -> None:
    code = (
        "import os, sys, types\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'bflp.cli.status':\n"
        "            assert 'numpy' not in sys.modules\n"
        "            sys.exit(os.environ['OMP_NUM_THREADS'] + os.environ['OPENBLAS_NUM_THREADS'])\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from bflp.cli import main; main(['status'])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=environment)
    assert done.stderr == "11\n"


def test_in_another_copy_of_the_project_that_copy_runs(tmp_path: Path) -> None:
    """As with snakemake: results and the code that made them belong together."""
    script = tmp_path / "workflow" / "scripts" / "run.py"
    script.parent.mkdir(parents=True)
    script.write_text("import sys; print('the copy', sys.argv[1:])", encoding="utf-8")
    installed = f"import sys; sys.path.insert(0, {str(PROJECT)!r}); from bflp.cli import main; main()"
    assert program("status", "--all", cwd=tmp_path, code=installed).stdout == "the copy ['status', '--all']\n"
    assert "usage: bflp VERB" in program("--help", cwd=script.parent, code=installed).stdout
    # What rules run is the project of the rules, wherever they run it.
    assert "usage: bflp VERB" in program("--help", cwd=tmp_path).stdout


def test_whoever_reads_may_stop_reading() -> None:
    """As with `| head`."""
    process = subprocess.Popen([sys.executable, RUN, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate() == (None, b"")
    assert process.returncode == 1


def test_the_package_exports_names_and_imports_nothing_for_it() -> None:
    done = program(code="import sys, bflp; print([name for name in sys.modules if name.startswith('bflp.')])")
    assert done.stdout == "[]\n"
    assert bflp.Settings.__name__ == "Settings" and bflp.Plan.__name__ == "Plan" and bflp.Cell.__name__ == "Cell"
    with pytest.raises(AttributeError, match="has no attribute 'settingz'"):
        _ = bflp.settingz


@pytest.mark.parametrize("job", ["x", "[]", "{}", '{"dataset": "fmnist"}'])
def test_the_job_of_a_partition_that_is_none(job: str) -> None:
    arguments = parser_of("partition").parse_args(["--job", job, "--data", "x.npz", "--output", "y.npz"])
    with pytest.raises(UserError, match=r"^malformed --job: [^\n]+$"):
        partition.run(arguments)


@pytest.mark.parametrize("argument", ["--processes", "--cells-per-gpu"])
@pytest.mark.parametrize("number", ["0", "-1"])
def test_numbers_that_must_be_at_least_one(argument: str, number: str) -> None:
    with pytest.raises(ConfigError, match=f"^{argument} must be at least 1$"):
        train.run(parser_of("train").parse_args(["--job", "{}", argument, number]))


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["2", "1e-3", "0.5", "cpu", "True", "true", "None", "null", "", "a b", "[1, x]", "x=y", "{a", "'2'", "1_0"]
)
def test_config_values_are_read_as_snakemake_reads_them(value: str) -> None:
    assert config_values([f"results_dir={value}"]) == parse_config([f"results_dir={value}"])


@pytest.mark.parametrize("entry", ["processes", "=2", "a.b=2", "training: 2"])
def test_config_entries_of_another_form_are_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        config_values([entry])


def test_config_files_and_values_lie_over_each_other_as_in_snakemake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    overlays = [{"grid": {"seeds": [1, 2]}, "processes": 3}, {"device": "cpu", "training": {"batch_size": 7}}]
    for number, content in enumerate([CONFIG, *overlays]):
        name = f"{number}.yaml" if number else "config.yaml"
        Path(name).write_text(yaml.safe_dump(content), encoding="utf-8")
    parser = argparse.ArgumentParser()
    add_settings_arguments(parser)
    words = ["--configfile", "1.yaml", "2.yaml", "--config", "processes=2", "results_dir=there"]
    settings = settings_of(parser.parse_args(words))
    expected: dict[str, object] = {}
    for content in (CONFIG, *overlays, parse_config(words[4:])):
        update_config(expected, content)
    assert settings.grid.seeds == [1, 2] and settings.training.batch_size == 7
    for name in ("processes", "device", "results_dir"):
        assert getattr(settings, name) == expected[name]
    assert (settings.processes, settings.results_dir) == (2, "there")


@pytest.mark.slow
def test_mistakes_in_settings_are_told_in_one_line(tmp_path: Path) -> None:
    assert one_line(program("status", cwd=tmp_path)) == "error: there is no config file config.yaml\n"
    Path(tmp_path, "config.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    assert "there is no config file x.yaml" in one_line(program("why", "--configfile", "x.yaml", cwd=tmp_path))
    assert "processes: must be greater than 0" in one_line(program("status", "--config", "processes=0", cwd=tmp_path))
    assert "deviec: unknown key" in one_line(program("status", "--config", "deviec=cpu", cwd=tmp_path))
    assert "the block a/b/2 is not in the grid" in one_line(program("figures", "--block", "a/b/2", cwd=tmp_path))
    assert "is not in the grid of config.yaml" in one_line(
        program("train", "--cell", "fmnist/iid/10/FED/none/seed0", cwd=tmp_path)
    )
    assert program("status", "--config", "device=cpu", "processes=1", cwd=tmp_path).returncode == 0


def test_a_closed_output_is_no_error() -> None:
    command = ["sh", "-c", 'exec "$0" "$@" >&-', sys.executable, str(RUN), "why"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
