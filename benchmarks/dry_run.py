"""How long it takes to see what would run: `snakemake -n`, and the command that says why, for 720 and 7,200 cells.

    python benchmarks/dry_run.py [--repeats 3]

The paper's grid with 5 and with 50 seeds, in a copy of the project without any results. Beside it two toy workflows
with as many jobs of one rule and one short string of params each: one with a single file per job, below which no
workflow can come, and one with the files of a training job (two inputs, two outputs, a log, a benchmark, an
environment). Seconds are the best of the repeats; beside them the seconds of one processor, which a busy machine
stretches less, and their ratio to the first toy's.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "workflow"))

from finished_grid import copy_project

TOY = """
JOBS = range({jobs})
rule all:
    input: expand("toy/{{job}}.json", job=JOBS)
rule train:
    output: "toy/{{job}}.json"
    params: job=lambda wildcards: f"what job {{wildcards.job}} depends on"
    shell: "train {{params.job:q}} > {{output}}"
"""
TOY_WITH_FILES = """
JOBS = range({jobs})
rule all:
    input: expand("toy/{{job}}.json", job=JOBS)
rule prepare:
    output: "toy/{{part}}.npz"
    shell: "prepare > {{output}}"
rule train:
    input: data=ancient("toy/data.npz"), partition="toy/partition.npz"
    output: result="toy/{{job}}.json", model="toy/{{job}}.safetensors"
    log: "toy/{{job}}.log"
    benchmark: "toy/{{job}}.tsv"
    conda: "envs/bflp.yaml"
    params: job=lambda wildcards: f"what job {{wildcards.job}} depends on"
    shell: "train {{params.job:q}} {{input.data:q}} {{input.partition:q}} > {{log:q}}"
"""
COMMANDS = {
    "toy, snakemake -n": ["-m", "snakemake", "-n", "-s", "toy.smk"],
    "toy with files, snakemake -n": ["-m", "snakemake", "-n", "-s", "toy_with_files.smk"],
    "snakemake -n": ["-m", "snakemake", "-n"],
    "bflp why": ["workflow/scripts/run.py", "why"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy_project(Path(folder))
        for seeds in (5, 50):
            config = Path(folder, f"seeds{seeds}.yaml")
            config.write_text(f"grid: {{seeds: {list(range(seeds))}}}\n", encoding="utf-8")
            for name, text in (("toy", TOY), ("toy_with_files", TOY_WITH_FILES)):
                Path(folder, f"{name}.smk").write_text(text.format(jobs=144 * seeds), encoding="utf-8")
            toy = None
            for name, arguments in COMMANDS.items():
                measured = [measure([*arguments, "--configfile", config.name], folder) for _ in range(repeats)]
                seconds, processor = map(min, zip(*measured, strict=True))
                toy = toy or processor
                rows.append([f"{144 * seeds:,}", name, f"{seconds:.1f}", f"{processor:.1f}", f"{processor / toy:.2f}"])
    headers = ["cells", "command", "seconds", "processor seconds", "ratio"]
    print(tabulate.tabulate(rows, headers, "github", disable_numparse=True))
    print(f"\n{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")


def measure(arguments: list[str], folder: str) -> tuple[float, float]:
    """Seconds by the clock and on the processor of a Python program."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
