"""What is asked for, what is pinned, the conda environment, the containers and the packages without CUDA agree."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ENVIRONMENTS = Path(__file__).resolve().parents[1] / "envs"
ASKED = [
    Requirement(line)
    for line in (ENVIRONMENTS / "requirements.in").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
PINNED = [
    Requirement(line)
    for line in (ENVIRONMENTS / "requirements.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.lstrip().startswith("#")
]
CONDA: dict[str, Any] = yaml.safe_load((ENVIRONMENTS / "bflp.yaml").read_text(encoding="utf-8"))
MACHINES = [
    {"sys_platform": system, "platform_system": name, "platform_machine": machine, "os_name": "posix"}
    for system, name, machine in (
        ("linux", "Linux", "x86_64"),
        ("linux", "Linux", "aarch64"),
        ("darwin", "Darwin", "arm64"),
        ("darwin", "Darwin", "x86_64"),
    )
]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def version(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    assert specifier.operator == "=="
    return specifier.version


def installed(machine: dict[str, str], python: str) -> dict[str, str]:
    """What requirements.txt gives on such a machine: name -> version. Fails where it gives two versions of one."""
    environment = {**machine, "python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    environment["platform_python_implementation"] = environment["implementation_name"] = "CPython"
    found: dict[str, list[str]] = defaultdict(list)
    for requirement in PINNED:
        if requirement.marker is None or requirement.marker.evaluate(environment):
            found[canonicalize_name(requirement.name)].append(version(requirement))
    assert {name: versions for name, versions in found.items() if len(versions) > 1} == {}
    return {name: versions[0] for name, versions in found.items()}


@pytest.mark.parametrize("requirement", ASKED, ids=lambda requirement: requirement.name)
@pytest.mark.parametrize(
    "machine", MACHINES, ids=lambda machine: f"{machine['sys_platform']}-{machine['platform_machine']}"
)
def test_all_that_is_asked_for_is_pinned_within_its_range(machine: dict[str, str], requirement: Requirement) -> None:
    for python in PYTHONS:
        pinned = installed(machine, python)
        name = canonicalize_name(requirement.name)
        assert name in pinned
        assert requirement.specifier.contains(pinned[name], prereleases=True)


def test_everything_is_pinned() -> None:
    assert len(PINNED) > 50
    for requirement in PINNED:
        assert version(requirement)
        assert requirement.url is None


def test_nothing_for_nvidia_gpus_on_a_mac() -> None:
    def of_nvidia(names: Any) -> set[str]:
        return {name for name in names if re.match(r"nvidia|cuda|triton|cupti", name)}

    for machine in MACHINES:
        for python in PYTHONS:
            found = of_nvidia(installed(machine, python))
            assert bool(found) is (machine["sys_platform"] == "linux"), (machine, python, found)


def test_the_conda_environment_has_the_pinned_versions() -> None:
    (pip,) = [entry["pip"] for entry in CONDA["dependencies"] if isinstance(entry, dict)]
    (python,) = [entry.partition("=")[2] for entry in CONDA["dependencies"] if str(entry).startswith("python=")]
    pinned = installed(MACHINES[0], python)
    found = {canonicalize_name(requirement.name): version(requirement) for requirement in map(Requirement, pip)}
    assert found == {name: pinned[name] for name in found}
    # All that jobs need is there: what is asked for, up to the packages for tests.
    text = (ENVIRONMENTS / "requirements.in").read_text(encoding="utf-8").partition("# Checks and tests")[0]
    needed = {canonicalize_name(Requirement(line).name) for line in text.splitlines() if line and line[0] != "#"}
    assert needed - set(found) <= {"snakemake-executor-plugin-slurm"}


def cpu_packages() -> list[Requirement]:
    """What `make setup CPU=1` installs."""
    command = ["sed", "-E", "-f", str(ENVIRONMENTS / "cpu.sed"), str(ENVIRONMENTS / "requirements.txt")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [Requirement(line) for line in text.splitlines() if line and not line.lstrip().startswith("#")]


def test_without_cuda_all_else_is_the_same() -> None:
    packages = {(str(requirement.name), str(requirement.marker)): requirement for requirement in cpu_packages()}
    pinned = {(str(requirement.name), str(requirement.marker)): requirement for requirement in PINNED}
    gone = {name for name, _ in pinned.keys() - packages.keys()}
    assert len(gone) > 10 and all(re.match(r"nvidia-|cuda-|triton$", name) for name in gone)
    assert not packages.keys() - pinned.keys()
    changed = {key[0]: packages[key] for key in packages if str(packages[key]) != str(pinned[key])}
    assert set(changed) == {"torch", "torchvision"}
    for name, requirement in changed.items():
        (before,) = [version(other) for (other_name, _), other in pinned.items() if other_name == name]
        assert version(requirement) == f"{before}+cpu"
        # And results of one may be merged with those of the other: it is the same version.
        assert Requirement(f"{name}=={before}").specifier.contains(version(requirement))


def test_without_cuda_nothing_that_is_left_needs_what_is_gone() -> None:
    """But torch itself, whose builds for CPUs are others."""
    left = {canonicalize_name(requirement.name) for requirement in cpu_packages()}
    gone = {canonicalize_name(requirement.name) for requirement in PINNED} - left
    for name in left - {"torch"}:
        try:
            needed = [Requirement(line) for line in requires(name) or ()]
        except PackageNotFoundError:
            continue
        usual = [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
        assert not gone & {canonicalize_name(each.name) for each in usual}, name


def test_make_takes_pytorchs_index_for_cpus_only_where_it_is_asked_to() -> None:
    for words, index in (([], False), (["CPU=1"], True)):
        command = ["make", "-n", "-B", ".venv/installed", *words]
        done = subprocess.run(command, cwd=ENVIRONMENTS.parent, capture_output=True, text=True, check=True)
        (line,) = [line for line in done.stdout.splitlines() if "/pip" in line]
        assert (
            "-r .venv/requirements-cpu.txt --extra-index-url https://download.pytorch.org/whl/cpu " in line
        ) is index
        assert ("-r envs/requirements.txt " in line) is not index


def test_both_containers_are_made_of_the_same() -> None:
    docker, apptainer = ((ENVIRONMENTS / name).read_text(encoding="utf-8") for name in ("Dockerfile", "apptainer.def"))
    (image,) = re.findall(r"^FROM (\S+)$", docker, re.M)
    assert re.findall(r"^From: (\S+)$", apptainer, re.M) == [image]
    (python,) = [entry.partition("=")[2] for entry in CONDA["dependencies"] if str(entry).startswith("python=")]
    assert image == f"python:{python}-slim"
    installs = re.findall(r"^RUN (pip .*)$", docker, re.M)
    assert re.findall(r"^    (pip .*)$", apptainer, re.M) == installs
    # As `make setup` does it: the pinned packages, then the project without any other.
    assert "-r /opt/bflp/envs/requirements.txt" in installs[0]
    assert "--no-deps --no-build-isolation --editable /opt/bflp" in installs[1] and len(installs) == 2
    copied = dict(re.findall(r"^COPY (\S+) (\S+)$", docker, re.M))
    assert dict(re.findall(r"^    (\S+) (/opt\S+)$", apptainer, re.M)) == copied
    for name, place in copied.items():
        assert (ENVIRONMENTS.parent / name).exists() and place == f"/opt/bflp/{name}"
    assert {"Snakefile", "bflp", "config.yaml", "envs", "profiles", "workflow", "pyproject.toml"} <= set(copied)
    # What builds the project without a network is among the pinned packages.
    assert "setuptools" in installed(MACHINES[0], python)


def test_the_running_environment_is_the_pinned_one() -> None:
    from importlib.metadata import version as installed_version

    pinned = {
        str(canonicalize_name(requirement.name)): requirement for requirement in PINNED if requirement.marker is None
    }
    for name in ("torch", "torchvision", "numpy", "pandas", "pydantic", "snakemake", "safetensors"):
        assert pinned[name].specifier.contains(installed_version(name), prereleases=True), name
