"""What finished cells made, kept under their identity, so that going back to earlier settings or code trains nothing.

Hard links beside the workflow's outputs, which Snakemake deletes before it runs a job again. A checkpoint, of a cell
that is finished or not, bears the same name (bflp.runtime.checkpoint). Imports no torch.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from bflp.errors import DataError
from bflp.files import sha256_of, whole_file
from bflp.grid.job import Job
from bflp.results.file import read_result, write

# What is kept of a cell, and how it is called: {identity}{suffix}.
SUFFIXES = {
    **{"result": ".json", "model": ".safetensors", "evaluation": ".evaluation.json"},
    "clients": ".clients.safetensors",
}


def keep(folder: Path, identity: str, files: Mapping[str, Path]) -> None:
    """Link the files of a finished cell, by the names of SUFFIXES. Raises OSError."""
    for what, file in files.items():
        link(file, folder / f"{identity}{SUFFIXES[what]}")


def restore(folder: Path, identity: str, files: Mapping[str, Path], job: Job) -> bool:
    """Put back what is kept; False, touching nothing, where there is no whole result with its model, byte for byte, and
    with the clients' models where `files` asks for them. The result names a person's own files where they are now."""
    kept = {what: folder / f"{identity}{SUFFIXES[what]}" for what in files}
    try:
        result = read_result(kept["result"], job.cell)
        environment = result.environment
        hashes = {"model": environment.model_file, "clients": environment.clients_file}
        for what in hashes.keys() & kept.keys():
            if sha256_of(kept[what]) != hashes[what]:
                return False
    except (DataError, FileNotFoundError):
        return False
    for what, file in files.items():
        if what == "result" and result.settings != job.settings:
            write(file, result.model_copy(update={"settings": dict(job.settings)}))
        elif kept[what].exists():
            link(kept[what], file)
            # Snakemake compares times: what is put back is newer than what it was made from.
            os.utime(file)
    return True


class CheckpointRounds:
    """After which round each cell that has a checkpoint would go on; the folder is listed once."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, list[Path]] = {}
        for file in folder.glob("*.checkpoint.safetensors"):
            self.files.setdefault(file.name.partition("-")[0], []).append(file)

    def of(self, identity: str) -> int:
        """The round; 0 where the cell would start at the beginning. identity: from `Job.identity`."""
        base, _, wanted = identity.partition("-")
        rounds = [checkpoint_round(file) for file in self.files.get(base, [])]
        return max((round_ for round_ in rounds if round_ <= int(wanted)), default=0)


def checkpoint_round(file: Path) -> int:
    """After which round a checkpoint was written, from the JSON at its head; 0 for a damaged one."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            head = json.loads(opened.read(min(length, file.stat().st_size)))
        return int(json.loads(head["__metadata__"]["history"])["round"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return 0


def stored(folder: Path) -> Iterator[tuple[str, Path]]:
    """(identity, file) of all that is kept, (identity without rounds, folder) of what clients remember.

    With what a job writes at this moment, or wrote when it was killed, whose name begins with a dot.
    """
    for file in sorted([*folder.glob("*-*.*"), *folder.glob("*.clients")]):
        yield file.name.removeprefix(".").partition(".")[0], file


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy where there can be none. Raises OSError."""
    with whole_file(target) as temporary:
        temporary.unlink(missing_ok=True)
        try:
            os.link(source, temporary)
        except OSError:  # a file system without hard links, or another one
            shutil.copyfile(source, temporary)
