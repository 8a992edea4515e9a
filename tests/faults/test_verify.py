"""`verify` finds what is wrong, names the file, and says what to do. What a result must hold: tests/results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file
from small_cell import End, SmallCell

from bflp.grid.plan import Plan
from bflp.provenance.verify import Report, verify
from bflp.results.file import checksum
from bflp.settings.schema import Settings


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[SmallCell, Path]:
    """A cell with data, partition, result, model and results.csv; and a copy of all."""
    folder = tmp_path_factory.mktemp("verify")
    cell = SmallCell(folder / "cell", rounds=5)
    for script, arguments in (
        ("prepare", cell.prepare_arguments()),
        ("partition", cell.partition_arguments()),
        ("train", cell.train_arguments()),
        ("merge", cell.settings_arguments()),
    ):
        end = cell.run(script, arguments)
        assert end.code == 0, end.text
    shutil.copytree(cell.folder, folder / "copy")
    return cell, folder / "copy"


@pytest.fixture
def cell(trained: tuple[SmallCell, Path]) -> SmallCell:
    cell, copy = trained
    shutil.rmtree(cell.folder)
    shutil.copytree(copy, cell.folder)
    return cell


def only_finding(report: Report, path: Path, *words: str) -> None:
    assert len(report.wrong) == 1, report.wrong
    text = str(report.wrong[0])
    assert text.startswith(f"{path}: ")
    assert all(word in text for word in words), text


def rewrite(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a result or evaluation and give it a right checksum again, as a program would that made it so."""
    content = json.loads(file.read_text(encoding="utf-8"))
    change(content)
    content["environment"]["checksum"] = checksum(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def test_all_is_right(cell: SmallCell) -> None:
    report = verify(cell.plan)
    assert (report.findings, report.missing, report.results) == ([], [], 1)


def run_verify(cell: SmallCell) -> End:
    config = cell.folder / "small.yaml"
    config.write_text(yaml.safe_dump(cell.config), encoding="utf-8")
    return cell.run("verify", ["--configfile", str(config)])


def test_the_program_names_the_file_and_what_to_do(cell: SmallCell) -> None:
    end = run_verify(cell)
    assert end.code == 0
    assert end.text == f"{cell.plan.results}: 1 cells, 1 results are right, 0 missing; 0 file(s) wrong\n"
    cell.result.write_text(cell.result.read_text().replace('"seed": 0', '"seed": 1'), encoding="utf-8")
    end = run_verify(cell)
    assert end.code == 1
    assert f"{cell.result}: was changed after it was written (wrong checksum): delete it and run" in end.text
    cell.result.unlink()
    end = run_verify(cell)
    assert end.code == 0
    assert "without a result yet (run snakemake):\n  tiny/noniid/4/FVBWA/PPA/seed0" in end.text


def test_other_settings(cell: SmallCell) -> None:
    other = Plan(Settings.parse({**cell.config, "training": {"learning_rate": 0.06}}))
    only_finding(verify(other), cell.result, "other settings", "training")
    # The partition's settings are the cell's, too.
    partitions = {"noniid": {"strategy": "dirichlet", "alpha": 0.4, "min_samples": 4}}
    report = verify(Plan(Settings.parse({**cell.config, "partitions": partitions})))
    assert [finding.path for finding in report.wrong] == [cell.partition, cell.result]


def test_new_content_under_an_old_name(cell: SmallCell) -> None:
    source = Path(cell.config["datasets"]["tiny"]["source"])
    with np.load(source) as archive:
        arrays = dict(archive)
    arrays["train_images"][0] ^= 1
    np.savez(source, **arrays)
    only_finding(verify(cell.plan), cell.data, "was made from another", "run snakemake again")
    assert cell.run("prepare", cell.prepare_arguments()).code == 0
    report = verify(cell.plan)
    assert [finding.path for finding in report.wrong] == [cell.partition, cell.result]
    assert "images or labels of tiny" in str(report.wrong[1])


def test_data_that_are_broken_are_one_finding_of_several(cell: SmallCell) -> None:
    cell.data.write_bytes(cell.data.read_bytes()[:-2000])
    only_finding(verify(cell.plan), cell.data, "is broken")
    cell.result.write_text("{", encoding="utf-8")
    assert [finding.path for finding in verify(cell.plan).wrong] == [cell.data, cell.result]


def test_data_that_are_not_there_are_a_remark(cell: SmallCell) -> None:
    cell.data.unlink()
    report = verify(cell.plan)
    assert report.wrong == []
    assert [finding.path for finding in report.remarks] == [cell.data]


def _nan_model(cell: SmallCell) -> None:
    tensors = load_file(cell.model)
    tensors["dense1.mean"][3, 4] = np.nan
    save_file(tensors, cell.model)


def _other_model(cell: SmallCell) -> None:
    tensors = load_file(cell.model)
    tensors["dense1.mean"][3, 4] += 1
    save_file(tensors, cell.model)


def _other_tensors(cell: SmallCell) -> None:
    save_file({"dense1.mean": np.zeros(3, dtype=np.float32)}, cell.model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda cell: cell.model.unlink(), ("is not there",)),
        (lambda cell: cell.model.write_bytes(cell.model.read_bytes()[:-8]), ("is damaged",)),
        (lambda cell: cell.model.write_bytes(b""), ("is damaged",)),
        (_nan_model, ("not finite",)),
        (_other_model, ("is not the model of the cell's result",)),
        (_other_tensors, ("other tensors",)),
    ],
)
def test_the_model(cell: SmallCell, change: Callable[[SmallCell], Any], words: tuple[str, ...]) -> None:
    """The workflow deletes the result with it; what is kept is the same file, and must not be put back."""
    change(cell)
    only_finding(verify(cell.plan), cell.model, *words, "delete", "run snakemake again")
    cell.result.unlink()
    cell.model.unlink(missing_ok=True)
    assert cell.run("train", cell.train_arguments()).code == 0
    assert verify(cell.plan).wrong == []


def test_a_partition_of_another_split(cell: SmallCell) -> None:
    from bflp.partition import files

    partition = files.load(cell.partition)
    swapped = partition.indices.copy()
    swapped[[0, -1]] = swapped[[-1, 0]]
    labels = np.arange(len(swapped)) % 4
    files.save(files.Partition(swapped, partition.offsets, partition.job), labels, cell.partition)
    only_finding(verify(cell.plan), cell.partition, "holds another split than its settings give")


def test_a_partition_of_other_code(cell: SmallCell) -> None:
    """The workflow would make it again; a cell must not be trained on it either."""
    from bflp.partition import files

    partition = files.load(cell.partition)
    labels = np.arange(len(partition.indices)) % 4
    job = {**partition.job, "fingerprint": "0" * 16}
    files.save(files.Partition(partition.indices, partition.offsets, job), labels, cell.partition)
    only_finding(verify(cell.plan), cell.partition, "made from another fingerprint")
    cell.clear()
    end = cell.run("train", cell.train_arguments())
    assert end.one_clear_error
    assert f"{cell.partition} was made from another fingerprint: delete it and run snakemake again" in end.text


def test_label_counts_and_merged_table(cell: SmallCell) -> None:
    counts = cell.partition.with_suffix(".csv")
    counts.write_text(counts.read_text().replace("0,", "1,", 1), encoding="utf-8")
    only_finding(verify(cell.plan), counts, "other counts")
    shutil.copy(cell.partition.with_suffix(".npz"), counts.with_suffix(".bak"))
    counts.unlink()
    merged = cell.plan.results / "results.csv"
    merged.write_text(merged.read_text().replace("PPA", "CF"), encoding="utf-8")
    only_finding(verify(cell.plan), merged, "does not hold what the cells' results say", "run snakemake again")


def test_files_that_the_config_does_not_name(cell: SmallCell) -> None:
    other = cell.result.with_name("seed7.json")
    shutil.copy(cell.result, other)
    temporary = cell.result.with_name(".seed0.json.123.tmp")
    temporary.touch()
    tables, figures = cell.plan.results / "tables", cell.plan.results / "figures" / "/".join(cell.plan.blocks()[0])
    left = [tables / "results7.md", tables / "target.tex", figures / "sweep.pdf", figures.with_name("7") / "sweep.pdf"]
    for file in (*left, tables / "datasets.md", tables / "statistics.md", figures / "learning_curves.svg"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    report = verify(cell.plan)
    assert report.wrong == []
    assert {finding.path: finding.what for finding in report.remarks} == {
        **dict.fromkeys([other, *left], "belongs to nothing in this config"),
        temporary: "was left by a program that is running or was killed",
    }
    # Training the cell again removes what a killed program left of it.
    assert cell.run("train", cell.train_arguments()).code == 0
    assert not temporary.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda cell: cell.evaluation.unlink(), ("is missing",)),
        (lambda cell: rewrite(cell.evaluation, lambda found: found["settings"].update(ece_bins=11)), ("11 bins",)),
    ],
)
def test_the_evaluation(cell: SmallCell, change: Callable[[SmallCell], Any], words: tuple[str, ...]) -> None:
    change(cell)
    only_finding(verify(cell.plan), cell.evaluation, *words, "run bflp evaluate")
    assert cell.run("evaluate", cell.settings_arguments()).code == 0
    assert verify(cell.plan).wrong == []


def test_all_damaged_results_are_named_at_once(cell: SmallCell) -> None:
    """Merging says everything that is wrong, not the first of it."""
    config = {**cell.config, "grid": {**cell.config["grid"], "seeds": [0, 1, 2]}}
    plan = Plan(Settings.parse(config))
    cell.result.write_text("{}", encoding="utf-8")
    plan.paths.result(plan.cells[2]).write_text("{", encoding="utf-8")
    end = cell.run("merge", ["--settings", plan.settings.canonical()])
    assert end.code == 1
    assert end.text.startswith("error: 3 result(s) cannot be used:")
    assert all(str(plan.paths.result(plan.cells[number])) in end.text for number in (0, 2))
    assert f"there is no result of {plan.cells[1]}" in end.text
