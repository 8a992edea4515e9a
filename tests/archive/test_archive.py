"""An archive has all that was made, always in the same bytes, and its check names whatever is changed in it."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fabricated_run
import pytest

from bflp.archive import check as checking
from bflp.archive.check import check
from bflp.archive.contents import CHECKSUMS, checksums, read_checksums, write
from bflp.errors import DataError, UserError
from bflp.grid.plan import Plan
from bflp.results.evaluation import Evaluation
from bflp.results.frame import frame, read_folder, rounds_frame

GIVEN = {"config/1-config.yaml": "# mine\nprocesses: 1\n"}
CELL = "synthetic/noniid/10/FVBA/EAA/seed1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path]:
    """A grid of 4 cells and its archive. Not to be changed."""
    folder = tmp_path_factory.mktemp("archive")
    plan = fabricated_run.plan(folder, samples=200, models=["FED", "FVBA"], aggregators=["EAA"], seeds=[0, 1])
    fabricated_run.make(plan)
    write(plan, GIVEN, False, folder / "grid.zip")
    return plan, folder / "grid.zip"


@pytest.fixture
def unpacked(made: tuple[Plan, Path], tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    with zipfile.ZipFile(made[1]) as archive:
        archive.extractall(folder)
    return folder


def files_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: dict[str, bytes], path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def forged(files: dict[str, bytes], path: Path) -> Path:
    """An archive of these files with right checksums, as somebody would make it who wants it to look whole."""
    rest = {name: content for name, content in files.items() if name != CHECKSUMS}
    return zipped({**rest, CHECKSUMS: checksums(rest).encode()}, path)


def wrong(path: Path) -> list[str]:
    return [str(finding).removeprefix(f"{path}/") for finding in check(path).wrong]


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


# What is in it -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_holds_what_was_made(made: tuple[Plan, Path], unpacked: Path) -> None:
    plan, path = made
    names = set(files_of(path))
    for cell in plan.cells:
        assert (unpacked / f"cells/{cell}.json").read_bytes() == plan.paths.result(cell).read_bytes()
        assert (unpacked / f"evaluations/{cell}.json").read_bytes() == plan.paths.evaluation(cell).read_bytes()
    assert {f"tables/{name}.{kind}" for name in ("results10", "spread", "datasets", "statistics")
            for kind in ("tex", "md", "html")} <= names  # fmt: skip
    block = "figures/synthetic/noniid/10"
    assert {f"{block}/learning_curves.pdf", f"{block}/label_counts.svg", "figures/differences.pdf"} <= names
    assert {"requirements.txt", "README.md", "code/Snakefile", "code/bflp/engine/client.py"} <= names
    assert (unpacked / "config/1-config.yaml").read_text() == GIVEN["config/1-config.yaml"]
    assert json.loads((unpacked / "settings.json").read_text())["training"]["momentum"] is not None
    about = json.loads((unpacked / "archive.json").read_text())
    assert about["rows"] == [["FED", "none"], ["FVBA", "EAA"]]
    assert [(entry["number"], entry["torch"]) for entry in about["cells"]] == [(4, "2")]
    finished = read_folder(unpacked)
    assert (unpacked / "results.csv").read_text() == frame(finished).to_csv(index=False)
    assert (unpacked / "rounds.csv").read_text() == rounds_frame(finished).to_csv(index=False)
    # Neither data nor models, nor what Python leaves behind.
    assert not [name for name in names if name.endswith((".npz", ".safetensors", ".pyc"))]


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(made: tuple[Plan, Path], tmp_path: Path) -> None:
    plan, path = made
    write(plan, GIVEN, False, tmp_path / "another.zip")
    assert (tmp_path / "another.zip").read_bytes() == path.read_bytes()


def test_its_checksums_are_those_of_sha256sum(unpacked: Path) -> None:
    if shutil.which("sha256sum") is None:
        pytest.skip("there is no sha256sum")
    done = subprocess.run(["sha256sum", "--strict", "-c", CHECKSUMS], cwd=unpacked, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = read_checksums((unpacked / CHECKSUMS).read_text())
    assert listed is not None
    present = {file.relative_to(unpacked).as_posix() for file in unpacked.rglob("*") if file.is_file()}
    assert listed.keys() == present - {CHECKSUMS}


def test_its_metadata_are_a_workflow_ro_crate(unpacked: Path) -> None:
    """What RO-Crate 1.1 and Workflow RO-Crate 1.0 say that must be there."""
    crate = json.loads((unpacked / "ro-crate-metadata.json").read_text())
    assert crate["@context"] == "https://w3id.org/ro/crate/1.1/context"
    entities = {entity["@id"]: entity for entity in crate["@graph"]}
    assert len(entities) == len(crate["@graph"])
    descriptor, root = entities["ro-crate-metadata.json"], entities["./"]
    assert descriptor["@type"] == "CreativeWork" and descriptor["about"] == {"@id": "./"}
    assert {"@id": "https://w3id.org/ro/crate/1.1"} in descriptor["conformsTo"]
    assert root["@type"] == "Dataset" and root["name"] and root["description"] and root["license"]
    assert len(root["datePublished"]) == 10
    workflow = entities[root["mainEntity"]["@id"]]
    assert set(workflow["@type"]) == {"File", "SoftwareSourceCode", "ComputationalWorkflow"}
    assert entities[workflow["programmingLanguage"]["@id"]]["@type"] == "ComputerLanguage"
    parts = {part["@id"] for part in root["hasPart"]}
    files = {name for name, entity in entities.items() if name != "./" and {"File", "Dataset"} & set(
        [entity["@type"]] if isinstance(entity["@type"], str) else entity["@type"])}  # fmt: skip
    assert parts == files
    for name in parts:
        assert (unpacked / name).is_dir() if name.endswith("/") else (unpacked / name).is_file(), name
    # All that is there is described, and all that is referred to.
    assert {f"{file.name}/" if file.is_dir() else file.name for file in unpacked.iterdir()} <= {
        *parts, "code/", "ro-crate-metadata.json",
    }  # fmt: skip

    def references(value: Any) -> list[str]:
        if isinstance(value, list):
            return [found for part in value for found in references(part)]
        if isinstance(value, dict):
            return [value["@id"]] if set(value) == {"@id"} else references(list(value.values()))
        return []

    assert {found for found in references(crate["@graph"]) if not found.startswith("https://")} <= set(entities)


@pytest.mark.slow
def test_models_come_along_where_they_are_asked_for(made: tuple[Plan, Path], tmp_path: Path) -> None:
    plan, path = made
    write(plan, GIVEN, True, tmp_path / "models.zip")
    with_models = files_of(tmp_path / "models.zip")
    new = set(with_models) - set(files_of(path))
    assert new == {f"cells/{cell}.safetensors" for cell in plan.cells}
    assert wrong(tmp_path / "models.zip") == []
    for name in new:
        assert with_models[name] == (plan.results / name).read_bytes()


def test_a_grid_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    plan = fabricated_run.plan(tmp_path, samples=200, models=["FED"], seeds=[0, 1])
    fabricated_run.make(plan, wanted=lambda cell: cell.seed == 0)
    with pytest.raises(DataError, match="there is no result of synthetic/noniid/10/FED/none/seed1"):
        write(plan, {}, False, tmp_path / "grid.zip")
    fabricated_run.make(plan)
    stale = fabricated_run.changed(plan, training={"learning_rate": 0.5})
    with pytest.raises(DataError, match=r"other settings \(training.learning_rate"):
        write(stale, {}, False, tmp_path / "grid.zip")
    other = fabricated_run.changed(plan, evaluation={"ece_bins": 7})
    with pytest.raises(DataError, match=r"the evaluation of .* is of other settings"):
        write(other, {}, False, tmp_path / "grid.zip")
    assert not (tmp_path / "grid.zip").exists()


# Its check -----------------------------------------------------------------------------------------------------------


def test_it_verifies_zipped_and_unpacked(made: tuple[Plan, Path], unpacked: Path, tmp_path: Path) -> None:
    report = check(made[1])
    assert report.wrong == [] and report.cells == 4 and report.files == len(files_of(made[1]))
    assert check(unpacked) == report
    # By another program, in another order, with entries for folders.
    again = tmp_path / "again.zip"
    with zipfile.ZipFile(again, "w") as archive:
        for file in sorted(unpacked.rglob("*"), reverse=True):
            archive.write(file, file.relative_to(unpacked))
    assert check(again) == report


def test_one_flipped_byte_of_any_file_is_named(made: tuple[Plan, Path], unpacked: Path) -> None:
    files = files_of(made[1])
    code = [name for name in files if name.startswith("code/")]
    generator = random.Random(0)
    for name in set(files) - set(code[5:]):
        (unpacked / name).write_bytes(flipped(files[name], generator.randrange(len(files[name]))))
        (finding,) = wrong(unpacked)
        assert finding.startswith(f"{name}: was changed")
        (unpacked / name).write_bytes(files[name])
    assert wrong(unpacked) == []


@pytest.mark.slow
def test_one_flipped_byte_of_the_zip_file_is_named_or_changes_no_file(made: tuple[Plan, Path], tmp_path: Path) -> None:
    whole, files = made[1].read_bytes(), files_of(made[1])
    damaged = tmp_path / "damaged.zip"
    with zipfile.ZipFile(made[1]) as archive:
        entries = archive.infolist()
    for entry in entries[::40]:
        damaged.write_bytes(flipped(whole, entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2))
        assert [finding.partition(": was changed")[0] for finding in wrong(damaged)] == [entry.filename]
    generator = random.Random(0)
    # Most of them in the directory at the end, where nearly every byte means something.
    start = len(whole) - len(entries) * 100
    for at in [generator.randrange(start if number % 3 else 0, len(whole)) for number in range(30)]:
        damaged.write_bytes(flipped(whole, at))
        try:
            found = wrong(damaged)
        except UserError as error:
            assert str(damaged) in str(error) and "\n" not in str(error)
        else:
            assert found or files_of(damaged) == files, at


def test_a_truncated_file_is_one_line(made: tuple[Plan, Path], tmp_path: Path) -> None:
    whole = made[1].read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path = tmp_path / "short.zip"
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="is not a whole zip file") as caught:
            check(path)
        assert "\n" not in str(caught.value)


def test_missing_and_added_files_are_named(made: tuple[Plan, Path], unpacked: Path, tmp_path: Path) -> None:
    files = files_of(made[1])
    without = {name: content for name, content in files.items() if name != "tables/spread.md"}
    assert wrong(zipped(without, tmp_path / "a.zip")) == ["tables/spread.md: is missing"]
    assert wrong(zipped({**files, "more.txt": b""}, tmp_path / "b.zip")) == ["more.txt: does not belong to it"]
    (unpacked / f"cells/{CELL}.json").rename(unpacked / "cells/other.json")
    assert wrong(unpacked) == ["cells/other.json: does not belong to it", f"cells/{CELL}.json: is missing"]


# What is no archive, and the words that are said.
NO_ARCHIVES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (lambda path: None, "there is no file"),
    "text": (lambda path: path.write_text("PK"), "is not a whole zip file"),
    "another zip": (lambda path: zipped({"a.txt": b"a"}, path), "is not an archive that `bflp archive` made"),
    "an empty zip": (lambda path: zipped({}, path), "is not an archive that `bflp archive` made"),
    "another folder": (lambda path: path.mkdir(), "is not an archive that `bflp archive` made"),
    "nothing but checksums": (lambda path: forged({}, path), "archive.json is missing"),
    **{
        f"{kind} name": (
            lambda path, name=name: zipped({CHECKSUMS: b"", name: b"x"}, path),  # type: ignore[misc]
            "a name that leads out of it",
        )
        for kind, name in {"a climbing": "a/../../b", "an absolute": "/tmp/b", "a Windows": "C:b", "no": "."}.items()
    },
}


@pytest.mark.parametrize("case", NO_ARCHIVES)
def test_what_is_no_archive_is_one_line(case: str, tmp_path: Path) -> None:
    make, words = NO_ARCHIVES[case]
    path = tmp_path / "inside" / "some.zip"
    path.parent.mkdir()
    make(path)
    with pytest.raises(UserError) as caught:
        check(path)
    message = str(caught.value)
    assert message.startswith(("there is no file", str(path))) and words in message and "\n" not in message
    assert {file.name for file in tmp_path.iterdir()} == {"inside"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice(made: tuple[Plan, Path], tmp_path: Path) -> None:
    path = zipped(files_of(made[1]), tmp_path / "a.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("results.csv", "other")
    with pytest.raises(UserError, match=r"holds results\.csv twice"):
        check(path)


def edit(change: Callable[[dict[str, Any]], Any], name: str) -> Callable[[dict[str, bytes]], Any]:
    """Change a JSON file."""

    def changed(files: dict[str, bytes]) -> None:
        content = json.loads(files[name])
        change(content)
        files[name] = json.dumps(content).encode()

    return changed


def replace(name: str, old: bytes, new: bytes) -> Callable[[dict[str, bytes]], Any]:
    def changed(files: dict[str, bytes]) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new, 1)

    return changed


# With right checksums: how it is changed, and the file that is named, with what is said of it.
FORGERIES: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "a number of the merged table": (replace("results.csv", b"noniid", b"iid"), "results.csv: is not what the cells'"),
    "a round": (replace("rounds.csv", b"noniid", b"iid"), "rounds.csv: is not what the cells'"),
    "a table": (replace("tables/results10.tex", b"FVBA", b"BEST"), "tables/results10.tex: is not what the cells'"),
    "a table too many": (lambda files: files.update({"tables/x.md": b""}), "tables/x.md: is no table of this grid"),
    "a table too few": (lambda files: files.pop("tables/spread.md"), "tables/spread.md: is not what"),
    "a result": (
        edit(lambda content: content["rounds"][0].update(accuracy=1.0), f"cells/{CELL}.json"),
        f"cells/{CELL}.json was changed after it was written (wrong checksum)",
    ),
    "no result": (lambda files: files.pop(f"cells/{CELL}.json"), f"there is no result cells/{CELL}.json"),
    "an evaluation of another cell": (
        lambda files: files.update({f"evaluations/{CELL}.json": files[f"evaluations/{CELL[:-1]}0.json"]}),
        f"evaluations/{CELL}.json holds the evaluation of another cell",
    ),
    "other data": (
        edit(lambda content: content.update(sha256="0" * 64), "data/synthetic.json"),
        "cells/synthetic/noniid/10/FED/none/seed0.json: was made of other data",
    ),
    "a seed less": (
        edit(lambda content: content["grid"].update(seeds=[0]), "settings.json"),
        "cells/synthetic/noniid/10/FED/none/seed1.json: is of a cell that the grid does not have",
    ),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_archive_contradicts_itself(made: tuple[Plan, Path], tmp_path: Path, case: str) -> None:
    change, words = FORGERIES[case]
    files = files_of(made[1])
    change(files)
    path = forged(files, tmp_path / "forged.zip")
    first = str(check(path).wrong[0]).removeprefix(f"{path}").lstrip("/: ")
    assert first.startswith(words)
    assert str(tmp_path / "forged.zip") in str(check(path).wrong[0]) and "/tmp/tmp" not in first


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("archive.json", lambda content: content.update(rows=[["FED", "../../x"]])),
        ("archive.json", lambda content: content.update(rows=3)),
        ("archive.json", lambda content: content.pop("posteriors")),
        ("archive.json", lambda content: content.update(format=2)),
        ("settings.json", lambda content: content["grid"].update(seeds="x")),
        ("settings.json", lambda content: content.pop("setups")),
        ("data/synthetic.json", lambda content: content.pop("labels")),
    ],
)
def test_nonsense_is_one_line(
    made: tuple[Plan, Path], tmp_path: Path, name: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    files = files_of(made[1])
    edit(change, name)(files)
    path = forged(files, tmp_path / "nonsense.zip")
    with pytest.raises(UserError) as caught:
        check(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_an_evaluation_of_another_model_is_named(made: tuple[Plan, Path], unpacked: Path, tmp_path: Path) -> None:
    name = f"evaluations/{CELL}.json"
    fabricated_run.rewrite(unpacked / name, Evaluation, lambda content: content.update(model_sha256="0" * 64))
    files = {**files_of(made[1]), name: (unpacked / name).read_bytes()}
    assert wrong(forged(files, tmp_path / "a.zip")) == [
        f"{name}: is of another model or other data than the cell's result"
    ]


def test_tables_by_other_code_say_so(made: tuple[Plan, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_of(made[1])
    replace("tables/results10.md", b"FVBA", b"FVBa")(files)
    path = forged(files, tmp_path / "a.zip")
    assert "other code" not in wrong(path)[0]
    monkeypatch.setattr(checking, "code_of_tables", lambda: "0" * 16)
    assert "is not what the cells' results give: it was made by other code than this" in wrong(path)[0]
    assert check(made[1]).wrong == []


@pytest.mark.slow
def test_own_files_are_kept_and_never_run_by_a_check(tmp_path: Path) -> None:
    rule = tmp_path / "my rule.py"
    text = "def aggregate(means, log_variances, weights, settings, generator):\n    return 0, 0\n"
    rule.write_text(text)
    # And with tables that read more than results.csv.
    tables = {"at_round": 6, "target_accuracy": 50, "mark_differences": True}
    top = {"aggregators": {"MINE": {"file": str(rule)}}, "tables": tables}
    plan = fabricated_run.plan(tmp_path, samples=200, top=top, models=["FVBA"], aggregators=["MINE"], seeds=[0])
    fabricated_run.make(plan)
    path = tmp_path / "grid.zip"
    write(plan, {}, False, path)
    files = files_of(path)
    assert "tables/target.md" in files and b"after round 6" in files["tables/results10.md"]
    assert files["own/1-my_rule.py"] == text.encode()
    assert json.loads(files["archive.json"])["own_files"] == {str(rule): "own/1-my_rule.py"}
    rule.write_text("raise SystemExit('it was run')")
    assert wrong(path) == []
    rule.unlink()
    assert wrong(path) == []


def test_a_checksum_is_of_the_content() -> None:
    text = checksums({"b": b"2", "a": b"1"})
    assert text.splitlines()[1:] == [f"{hashlib.sha256(c).hexdigest()}  {n}" for n, c in (("a", b"1"), ("b", b"2"))]
    assert read_checksums(text) == {n: hashlib.sha256(c).hexdigest() for n, c in (("a", b"1"), ("b", b"2"))}
    for at in range(len(text)):
        assert read_checksums(text[:at] + "x" + text[at + 1 :]) is None


def test_a_full_disk_is_no_damage(made: tuple[Plan, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("bflp.archive.check.shutil.copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        check(made[1])
