"""A real SLURM of one node, this machine, for the length of a test: its own key, ports and folder, beside any other.

It has two processors and one counted GPU (a file that no program opens). Jobs of the partition `urgent` preempt those
of `main`, whose time limit is short. Needs root and Debian's packages slurmctld, slurmd, slurm-client and munge.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

# The longest that a job of `main` may ask for: less than two attempts of a cell take.
HOURS = 6
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
SECONDS_TO_START = 40

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2,batch_sched_delay=0
MinJobAge=300
KillWait=15
OverTimeLimit=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=20000 Gres=gpu:1 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime={hours}:00:00 State=UP PriorityTier=1 GraceTime=0
PartitionName=urgent Nodes={host} MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""


def missing() -> str | None:
    """Why there can be no SLURM here; None if there can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if absent:
        return f"SLURM is not installed here (no {', '.join(absent)}; Debian: slurmctld slurmd slurm-client munge)"
    return None if os.geteuid() == 0 else "starting SLURM's daemons needs root"


class Cluster:
    """A running cluster; `environment` is what its commands need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = folder / "slurm.conf"
        # Within a job the executor takes all SLURM_ variables from srun's environment, this one too, which a cluster
        # with its configuration in /etc does not need.
        srun = folder / "bin" / "srun"
        srun.parent.mkdir()
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={config} exec {shutil.which("srun", path=_path())} "$@"\n')
        srun.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{srun.parent}:{_path()}", "SLURM_CONF": str(config)}

    def run(self, *command: str) -> str:
        """A command's output. Raises CalledProcessError."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True, timeout=30
        ).stdout

    def wait_until_idle(self, daemons: Sequence[subprocess.Popen[bytes]]) -> None:
        deadline = time.monotonic() + SECONDS_TO_START
        state = ""
        while time.monotonic() < deadline:
            ended = [daemon.args for daemon in daemons if daemon.poll() is not None]
            if ended:
                raise RuntimeError(f"{ended} ended: {self.logs()}")
            with contextlib.suppress(subprocess.SubprocessError):
                state = self.run("sinfo", "--noheader", "--format=%T").strip()
                if state == "idle":
                    return
            time.sleep(0.3)
        raise RuntimeError(f"the node is {state or 'not there'} after {SECONDS_TO_START} s: {self.logs()}")

    def logs(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Start the daemons; end them, and all jobs, afterwards."""
    # Not in a test's own folder, whose path may be too long for a socket.
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("state", "spool"):
            (folder / part).mkdir()
        ports = _free_ports(2)
        (folder / "slurm.conf").write_text(
            CONFIG.format(
                host=socket.gethostname(), folder=folder, controller_port=ports[0], node_port=ports[1], hours=HOURS
            )
        )
        (folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        munged = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={key}"]
        munged += [f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/seed"]
        running = Cluster(folder)
        daemons: list[subprocess.Popen[bytes]] = []
        try:
            for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
                output = (folder / f"{command[0]}.out.log").open("wb")
                with output:
                    daemons.append(
                        subprocess.Popen(command, env=running.environment, stdout=output, stderr=subprocess.STDOUT)
                    )
                time.sleep(0.5)
            running.wait_until_idle(daemons)
            yield running
        finally:
            if len(daemons) == 3:
                _end_jobs(running)
            for daemon in reversed(daemons):
                _end(daemon)


def _end_jobs(running: Cluster) -> None:
    with contextlib.suppress(subprocess.SubprocessError):
        running.run("scancel", "--full", "--signal=KILL", "--state=RUNNING")
        running.run("scancel", "--user=root")
        deadline = time.monotonic() + 20
        while running.run("squeue", "--noheader").strip() and time.monotonic() < deadline:
            time.sleep(0.3)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
