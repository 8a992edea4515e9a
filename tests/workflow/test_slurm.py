"""profiles/slurm on a real one-node SLURM: cells that run into their time limit, are cancelled or are preempted go on
from the checkpoint that they wrote when they were told to end, and the grid comes out right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import one_node_slurm
import pytest
import yaml
from one_node_slurm import Cluster
from small_project import ROOT, Project, checked

pytestmark = [
    pytest.mark.skipif(one_node_slurm.missing() is not None, reason=str(one_node_slurm.missing())),
    pytest.mark.skipif(" " in sys.executable, reason="the plugin cannot start a Python with a space in its path"),
]

ROUNDS, INTERRUPTED_AFTER = 6, 3
SECONDS = 600
SEEDS = [0, 1, 2, 3]
# Notes each round and the card; after the third it waits to be interrupted, until the test says that it may go on.
RULE = f"""
import os
import time
from pathlib import Path

def aggregate(means, log_variances, weights, settings, generator):
    if means.shape[1] > 100:
        note = Path("rounds", os.environ.get("SLURM_JOB_ID", "local"))
        note.parent.mkdir(exist_ok=True)
        with note.open("a") as file:
            file.write(f"{{os.environ.get('CUDA_VISIBLE_DEVICES')}}\\n")
        while len(note.read_text().split()) > {INTERRUPTED_AFTER} and not Path("go on").exists():
            time.sleep(0.05)
    return weights @ means, weights @ log_variances
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with one_node_slurm.cluster() as running:
        yield running


def project_in(folder: Path) -> Project:
    project = Project.make(folder)
    (project.folder / "slow.py").write_text(RULE, encoding="utf-8")
    # As docs/cluster.md says: the partition's limit, in minutes.
    profile = project.folder / "profiles/slurm/config.yaml"
    text = profile.read_text(encoding="utf-8")
    assert "min(240 * attempt, 1440)" in text
    profile.write_text(text.replace("1440", str(60 * one_node_slurm.HOURS)), encoding="utf-8")
    project.configure(
        grid={"models": ["FVBA"], "aggregators": ["SLOW"], "seeds": SEEDS},
        setups={2: {"fraction": 1.0, "rounds": ROUNDS}},
        # Only a signal makes a cell save.
        checkpoint_seconds=100000,
        aggregators={"SLOW": {"file": "slow.py"}},
        device="auto",
    )
    return project


def jobs(cluster: Cluster) -> list[dict[str, str]]:
    """All jobs of the cluster: id, state, time limit, and the comment, which names the cell."""
    lines = cluster.run("squeue", "--states=all", "--noheader", "--format=%i|%T|%l|%k").splitlines()
    return [dict(zip(("id", "state", "limit", "cell"), line.split("|"), strict=True)) for line in sorted(lines)]


def interruptible(cluster: Cluster, project: Project, after: set[str], snakemake: subprocess.Popen[str]) -> str:
    """Wait for a running job that waits to be interrupted, other than those in `after`; its number."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        assert snakemake.poll() is None, "snakemake ended"
        for job in jobs(cluster):
            note = project.folder / "rounds" / job["id"]
            rounds = len(note.read_text().split()) if note.exists() else 0
            if job["state"] == "RUNNING" and job["id"] not in after and rounds > INTERRUPTED_AFTER:
                return job["id"]
        time.sleep(0.3)
    raise AssertionError(f"no job waits: {jobs(cluster)}\n{cluster.logs()}")


def wait_for_state(cluster: Cluster, job: str, states: set[str]) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if {each["state"] for each in jobs(cluster) if each["id"] == job} & states:
            return
        time.sleep(0.3)
    raise AssertionError(f"job {job} is in none of {states}: {jobs(cluster)}")


def test_a_grid_survives_what_happens_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    project = project_in(tmp_path / "cluster")
    log = (tmp_path / "snakemake.log").open("w+")
    command = [sys.executable, "-m", "snakemake", "--workflow-profile", "profiles/slurm", "--until", "merge"]
    # More often than a real cluster likes to be asked.
    command += ["--slurm-init-seconds-before-status-checks", "2", "--configfile", "small.yaml"]
    snakemake = subprocess.Popen(
        command, cwd=project.folder, env=cluster.environment, stdout=log, stderr=subprocess.STDOUT, text=True
    )
    try:
        timed_out = interruptible(cluster, project, set(), snakemake)
        # As if its four hours were over.
        cluster.run("scontrol", "update", f"JobId={timed_out}", "EndTime=now+1")
        wait_for_state(cluster, timed_out, {"TIMEOUT"})
        cancelled = interruptible(cluster, project, {timed_out}, snakemake)
        cluster.run("scancel", cancelled)
        wait_for_state(cluster, cancelled, {"CANCELLED"})
        preempted = interruptible(cluster, project, {timed_out, cancelled}, snakemake)
        urgent = cluster.run("sbatch", "--parsable", "--partition=urgent", "--gpus=1", "--wrap=true").strip()
        wait_for_state(cluster, urgent, {"COMPLETED"})
        (project.folder / "go on").touch()
        code = snakemake.wait(SECONDS)
    finally:
        snakemake.kill()
        snakemake.wait()
        log.seek(0)
        print(log.read()[-20000:])
    assert code == 0
    _check_jobs(cluster, project, timed_out, cancelled, preempted)
    _check_results(project, tmp_path)


def _check_jobs(cluster: Cluster, project: Project, timed_out: str, cancelled: str, preempted: str) -> None:
    by_id = {job["id"]: job for job in jobs(cluster)}
    assert by_id[preempted]["state"] == "COMPLETED", "the job itself was started again"
    assert by_id[cancelled]["limit"] == "4:00:00"
    for job in (timed_out, cancelled):
        again = [each for each in by_id.values() if each["cell"] == by_id[job]["cell"] and int(each["id"]) > int(job)]
        assert [each["state"] for each in again] == ["COMPLETED"]
        # The time grows with each attempt, up to what the partition gives: beyond that no job would start.
        assert [each["limit"] for each in again] == [f"{one_node_slurm.HOURS}:00:00"]
    # The card that SLURM gave; rules that need none ran here and not as jobs.
    seen = {line for note in (project.folder / "rounds").iterdir() for line in note.read_text().split()}
    assert seen == {"0"}
    known = [job["cell"] for job in by_id.values() if job["cell"] != "(null)"]
    assert all("train" in each or "evaluate" in each for each in known), known


def _check_results(project: Project, tmp_path: Path) -> None:
    resumed = {}
    for seed in SEEDS:
        result = json.loads(project.result("FVBA/SLOW", seed).read_text(encoding="utf-8"))
        resumed[seed] = result["environment"]["resumed_at"]
        assert len(result["rounds"]) == ROUNDS
    # Each interruption is a resumption: no round was done twice.
    assert sum(len(rounds) for rounds in resumed.values()) == 3
    assert {round_ for rounds in resumed.values() for round_ in rounds} <= set(range(INTERRUPTED_AFTER, ROUNDS))
    rounds_done = sum(len(note.read_text().split()) for note in (project.folder / "rounds").iterdir())
    assert rounds_done == len(SEEDS) * ROUNDS + 3, "beyond all rounds only those that were broken off"
    # And what came out is what comes out without any of this.
    seed = next(seed for seed, rounds in resumed.items() if rounds)
    undisturbed = project_in(tmp_path / "undisturbed")
    (undisturbed.folder / "go on").touch()
    cell = f"tiny/iid/2/FVBA/SLOW/seed{seed}"
    checked(undisturbed.bflp("train", "--configfile", "small.yaml", "--cell", cell))
    left, right = (
        json.loads(each.result("FVBA/SLOW", seed).read_text(encoding="utf-8")) for each in (project, undisturbed)
    )
    for part in ("environment", "timing"):
        left.pop(part), right.pop(part)
    assert left == right


# Without a cluster ---------------------------------------------------------------------------------------------------


def test_rules_that_run_where_snakemake_does() -> None:
    """All but those that train, so that a login node prepares the data: compute nodes may have no network."""
    text = (ROOT / "Snakefile").read_text(encoding="utf-8")
    rules = set(re.findall(r"^rule (\w+):", text, flags=re.MULTILINE))
    local = re.search(r"^localrules:\n((?:    \w+,\n)+)", text, flags=re.MULTILINE)
    assert local
    assert rules - set(re.findall(r"\w+", local[1])) == {"train", "evaluate", "measure_round_time"}


def test_what_the_profile_leaves_out() -> None:
    """A limit on gpu is one over all jobs, so it would leave a single job in the queue."""
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text(encoding="utf-8"))
    assert "resources" not in profile and "cores" not in profile
    assert profile["slurm-status-command"] == "squeue"
    assert profile["slurm-requeue"] is True
