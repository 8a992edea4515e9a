# The whole flow: prepare -> partition -> train -> merge -> tables.
# What to run and how is in config.yaml; `snakemake -n` lists the jobs.
import shlex
import sys
from pathlib import Path

from snakemake.settings.types import DeploymentMethod

sys.path.insert(0, workflow.basedir)

from bflp.command_line import check_sources
from bflp.config import Settings
from bflp.errors import UserError
from bflp.grid import Cell, Plan
from bflp.tables import table_names


configfile: "config.yaml"


try:
    SETTINGS = Settings.parse(config)
    PLAN = Plan(SETTINGS)
    check_sources(PLAN)
except UserError as error:
    sys.exit(f"error: {error}")

RESULTS, DATA = SETTINGS.results_dir, SETTINGS.data_dir
CELL = "{dataset}/{partition}/{clients}/{model}/{aggregator}/seed{seed}"
PARTITION = "{dataset}/{partition}/{clients}/seed{seed}"
# What jobs are told but what does not decide whether they run again; that is in their params.
SETTINGS_TEXT, PACE = SETTINGS.canonical(), SETTINGS.checkpoint.model_dump_json()
OOD = f"--ood {shlex.quote(str(PLAN.ood_file()))}" if PLAN.ood_file() else ""
SCRIPTS = Path(workflow.basedir, "workflow", "scripts")
# With conda the environment's python is first in the path; else jobs use the python that runs Snakemake.
CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
PYTHON = "python" if CONDA else sys.executable


def cell_of(wildcards):
    return Cell(**{**dict(wildcards), "clients": int(wildcards.clients), "seed": int(wildcards.seed)})


wildcard_constraints:
    dataset="[^/]+",
    partition="[^/]+",
    clients=r"\d+",
    model="[A-Z]+",
    aggregator=r"\w+",
    seed=r"\d+",


localrules:
    all,
    prepare,
    partition,
    merge,
    tables,


rule all:
    input:
        expand(f"{RESULTS}/tables/{{name}}.{{kind}}", name=table_names(SETTINGS), kind=["tex", "md"]),


rule prepare:
    output:
        data=f"{DATA}/{{dataset}}.npz",
        summary=f"{DATA}/{{dataset}}.json",
    input:
        # A touched source is still the same source: its content's hash is among the params.
        lambda wildcards: ancient(SETTINGS.source(wildcards.dataset) or []),
    params:
        job=lambda wildcards: PLAN.prepare_job(wildcards.dataset),
    log:
        f"{RESULTS}/logs/prepare/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/prepare/{{dataset}}.tsv"
    conda:
        "envs/bflp.yaml"
    shell:
        "{PYTHON} {SCRIPTS}/prepare.py {wildcards.dataset:q} --settings {SETTINGS_TEXT:q} > {log:q} 2>&1"


rule partition:
    input:
        data=ancient(f"{DATA}/{{dataset}}.npz"),
        summary=f"{DATA}/{{dataset}}.json",
    output:
        indices=f"{RESULTS}/partitions/{PARTITION}.npz",
        counts=f"{RESULTS}/partitions/{PARTITION}.csv",
    params:
        job=lambda wildcards: PLAN.partition_job(
            wildcards.dataset, wildcards.partition, int(wildcards.clients), int(wildcards.seed)
        ),
    log:
        f"{RESULTS}/logs/partition/{PARTITION}.log",
    benchmark:
        f"{RESULTS}/benchmarks/partition/{PARTITION}.tsv"
    conda:
        "envs/bflp.yaml"
    shell:
        "{PYTHON} {SCRIPTS}/partition.py --job {params.job:q} --data {input.data:q}"
        " --output {output.indices:q} > {log:q} 2>&1"


rule train:
    input:
        # Large files are compared by time only; what changes a result is in the params and in the small summary.
        data=ancient(f"{DATA}/{{dataset}}.npz"),
        summary=f"{DATA}/{{dataset}}.json",
        partition=ancient(f"{RESULTS}/partitions/{PARTITION}.npz"),
        ood=ancient([PLAN.ood_file()] if PLAN.ood_file() else []),
        ood_summary=[PLAN.ood_file().with_suffix(".json")] if PLAN.ood_file() else [],
    output:
        result=f"{RESULTS}/cells/{CELL}.json",
        model=f"{RESULTS}/cells/{CELL}.safetensors",
    params:
        job=lambda wildcards: PLAN.job(cell_of(wildcards)),
    log:
        f"{RESULTS}/logs/train/{CELL}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train/{CELL}.tsv"
    threads: SETTINGS.processes
    resources:
        gpu=0 if SETTINGS.device == "cpu" else 1,
    conda:
        "envs/bflp.yaml"
    shell:
        "{PYTHON} {SCRIPTS}/train.py --job {params.job:q} --processes {threads} --device {SETTINGS.device}"
        " --data {input.data:q} --partition {input.partition:q} --result {output.result:q} --model {output.model:q}"
        " --checkpoint-folder {RESULTS:q}/checkpoints/{wildcards.dataset:q}/{wildcards.partition:q}"
        "/{wildcards.clients}/{wildcards.model}/{wildcards.aggregator}/seed{wildcards.seed}"
        " --checkpoint {PACE:q} --on-divergence {SETTINGS.on_divergence} {OOD} > {log:q} 2>&1"


rule merge:
    input:
        [PLAN.result_file(cell) for cell in PLAN.cells],
    output:
        f"{RESULTS}/results.csv",
    params:
        job=PLAN.summary_job("bflp.results"),
    log:
        f"{RESULTS}/logs/merge.log",
    benchmark:
        f"{RESULTS}/benchmarks/merge.tsv"
    conda:
        "envs/bflp.yaml"
    shell:
        "{PYTHON} {SCRIPTS}/merge.py --settings {SETTINGS_TEXT:q} --output {output:q} > {log:q} 2>&1"


rule tables:
    input:
        results=f"{RESULTS}/results.csv",
        summaries=expand(f"{DATA}/{{dataset}}.json", dataset=SETTINGS.grid.datasets),
    output:
        expand(f"{RESULTS}/tables/{{name}}.{{kind}}", name=table_names(SETTINGS), kind=["tex", "md"]),
    params:
        job=PLAN.summary_job("bflp.tables"),
    log:
        f"{RESULTS}/logs/tables.log",
    benchmark:
        f"{RESULTS}/benchmarks/tables.tsv"
    conda:
        "envs/bflp.yaml"
    shell:
        "{PYTHON} {SCRIPTS}/tables.py --settings {SETTINGS_TEXT:q} > {log:q} 2>&1"
