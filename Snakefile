# The whole flow: prepare -> partition -> train -> evaluate -> merge -> tables, figures, overview; `--report` shows them
# on a page.
# What to run and how is in config.yaml; `snakemake -n` lists the jobs.
import gc
import inspect
import os
import shlex
import sys
import uuid
from functools import cache
from pathlib import Path

# Before numpy is imported: no program takes more threads than it was given.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
# Jobs have it from here, also on a cluster: what cannot succeed is not tried again in the same run.
os.environ.setdefault("BFLP_RUN", uuid.uuid4().hex)

from snakemake.settings.types import DeploymentMethod

sys.path.insert(0, workflow.basedir)
# For thousands of jobs Snakemake makes millions of objects that stay; looking through them for garbage again and again
# takes a seventh of a dry run.
gc.set_threshold(200_000, 20, 20)

from bflp.cli.common import config_files, plan_of
from bflp.errors import run_program
from bflp.grid.cell import Cell
from bflp.provenance.state import announce
from bflp.reporting.figures import MODULES, figures_of
from bflp.reporting.overview import PAGES
from bflp.reporting.pdf import find_latex
from bflp.reporting.titles import block_title, dataset_title, federation_title, table_titles

# Not of Snakemake's own `config`, in which an overlay with another strategy would keep the keys of the old one.
GIVEN = workflow.config_settings
CONFIG_FILES = GIVEN.configfiles if GIVEN.replace_workflow_config else config_files(GIVEN.configfiles)
PLAN = run_program(lambda: plan_of(CONFIG_FILES, GIVEN.config))


configfile: "config.yaml"


report: "workflow/report/workflow.rst"


SETTINGS = PLAN.settings
RESULTS, DATA = SETTINGS.results_dir, SETTINGS.data_dir
CELL = "{dataset}/{partition}/{clients}/{model}/{aggregator}/seed{seed}"
BLOCK = "{dataset}/{partition}/{clients}"
PARTITION = "{dataset}/{partition}/{clients}/seed{seed}"
# Missing where Snakemake's records are lost and the results are of other settings or code: merging then says so.
MERGED = f"{RESULTS}/.merged/{run_program(PLAN.identity)}"
# With conda the environment's python is first in the path; else jobs use the python that runs Snakemake.
CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
PYTHON = "python" if CONDA else sys.executable


class Unrecorded:
    """A param excluded from the rerun triggers: Snakemake records plain values only, and fills in only strings."""

    def __init__(self, text):
        self.text = text

    def __str__(self):
        return self.text


@cache
def program(verb, *arguments):
    """The start of a command."""
    return Unrecorded(
        shlex.join(map(str, [PYTHON, Path(workflow.basedir, "workflow", "scripts", "run.py"), verb, *arguments]))
    )


@cache
def prepare_job(dataset):
    return run_program(lambda: PLAN.prepare_job(dataset))


def cell_of(wildcards):
    names = ("dataset", "partition", "clients", "model", "aggregator")
    return run_program(lambda: PLAN.known(Cell(*(wildcards[name] for name in names), int(wildcards.seed))))


def block_of(wildcards):
    return run_program(lambda: PLAN.known_block(wildcards.dataset, wildcards.partition, wildcards.clients))


def of_cell(function):
    """A function that is called for each cell. Snakemake looks at its parameters a dozen times for each, which takes a
    twentieth of a dry run unless they are written down."""
    function.__signature__ = inspect.signature(function)
    return function


@of_cell
def cell_job(wildcards):
    return PLAN.job(cell_of(wildcards))


@of_cell
def cell_partition(wildcards):
    return PLAN.partition_file(cell_of(wildcards))


@of_cell
def train_program(wildcards):
    # Beside how to run it, what is not a reason to train again: where things lie, and how it will be evaluated.
    return program(
        "train",
        *("--device", SETTINGS.device),
        *("--cells-per-gpu", SETTINGS.cells_per_gpu),
        *("--on-divergence", SETTINGS.on_divergence),
        *("--checkpoint-seconds", SETTINGS.checkpoint_seconds),
        *("--evaluation", PLAN.evaluation_text(cell_of(wildcards))),
        *("--results", RESULTS),
        *("--prepared", prepare_job(wildcards.dataset)),
        *(["--keep-clients"] if SETTINGS.keep_clients else []),
    )


def partition_job(wildcards):
    names = wildcards.dataset, wildcards.partition
    return run_program(lambda: PLAN.partition_job(*names, int(wildcards.clients), int(wildcards.seed)))


def ood_files(dataset):
    """The out-of-distribution data set beside a data set, and the summary that tells when it was prepared again."""
    name = SETTINGS.out_of_distribution(dataset)
    return ([f"{DATA}/{name}.npz"], [f"{DATA}/{name}.json"]) if name else ([], [])


def kept_clients(cell):
    """The file of the last round's clients, where it is asked for."""
    return [PLAN.paths.clients(cell)] if SETTINGS.keep_clients else []


def page(path, caption, category, **labels):
    """A file for the report. Categories and labels lead to it; the caption is in workflow/report."""
    return report(path, caption=f"workflow/report/{caption}.rst", category=category, labels=labels)


TITLES = table_titles(PLAN)
TABLES = expand(f"{RESULTS}/tables/{{name}}.{{kind}}", name=TITLES, kind=["tex", "md", "html"])
FIGURES = [
    f"{RESULTS}/figures/{'/'.join(map(str, block))}/{name}.{suffix}"
    for block in PLAN.blocks()
    for name in figures_of(PLAN)
    for suffix in ("pdf", "svg")
]
# No setting of a cell's job, since its result is the same with and without: where the file is missing, the cell trains.
KEPT_CLIENTS = {"clients": f"{RESULTS}/cells/{CELL}.clients.safetensors"} if SETTINGS.keep_clients else {}
EVALUATED = [PLAN.paths.evaluated(*block) for block in PLAN.blocks()]
# Whoever adds a source sees it in the comparison.
PUBLISHED = sorted(
    str(file)
    for pattern in ("bflp/paper/published/*/*", "examples/papers/*.yaml")
    for file in Path(workflow.basedir).glob(pattern)
)
OVERVIEW = expand(f"{RESULTS}/overview/{{name}}.html", name=PAGES)


wildcard_constraints:
    dataset="[^/]+",
    partition="[^/]+",
    clients="[^/]+",
    model="[^/]+",
    aggregator=r"\w+",
    seed=r"0|[1-9]\d*",
    processes=r"[1-9]\d*",


localrules:
    all,
    prepare_all,
    prepare,
    partition,
    merge,
    tables,
    tables_pdf,
    figures,
    draw,
    overview,
    round_time,
    round_time_figure,
    statistics,
    comparison,


onstart:
    # Snakemake's plugin does not quote it: all jobs would fail, with an empty log.
    if workflow.executor_plugin.name == "slurm" and " " in sys.executable:
        sys.exit(f"error: on SLURM jobs cannot start {sys.executable}: its path has a space; move the clone")
    announce(PLAN)


rule all:
    input:
        MERGED,
        TABLES,
        FIGURES,
        OVERVIEW,


rule prepare_all:
    input:
        [f"{DATA}/{dataset}.json" for dataset in PLAN.datasets()],


rule prepare:
    # A source file is not an input: its content's hash is in the job, so it may be touched or moved.
    output:
        data=f"{DATA}/{{dataset}}.npz",
        summary=f"{DATA}/{{dataset}}.json",
    log:
        f"{RESULTS}/logs/prepare/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/prepare/{{dataset}}.tsv"
    conda:
        "envs/bflp.yaml"
    params:
        program=program("prepare", "--settings", SETTINGS.canonical()),
        job=lambda wildcards: prepare_job(wildcards.dataset),
    shell:
        "{params.program} {wildcards.dataset:q} > {log:q} 2>&1"


rule partition:
    input:
        data=ancient(f"{DATA}/{{dataset}}.npz"),
        summary=f"{DATA}/{{dataset}}.json",
    output:
        indices=f"{RESULTS}/partitions/{PARTITION}.npz",
        counts=f"{RESULTS}/partitions/{PARTITION}.csv",
    log:
        f"{RESULTS}/logs/partition/{PARTITION}.log",
    benchmark:
        f"{RESULTS}/benchmarks/partition/{PARTITION}.tsv"
    wildcard_constraints:
        # Not a set-up's name, as elsewhere: how many there are.
        clients=r"[1-9]\d*",
    conda:
        "envs/bflp.yaml"
    params:
        program=program("partition"),
        job=partition_job,
    shell:
        "{params.program} --job {params.job:q} --data {input.data:q} --output {output.indices:q} > {log:q} 2>&1"


rule train:
    input:
        # Snakemake compares large files by time only, so a mere touch would count: these are ancient. At least one input
        # must not be, since Snakemake does not look at the params of a job all of whose inputs that are made again are
        # ancient. The partition is small, and is made again where the data are.
        data=ancient(f"{DATA}/{{dataset}}.npz"),
        partition=cell_partition,
    output:
        **KEPT_CLIENTS,
        # The evaluation that it writes, too, is not an output: `evaluate` replaces it in place.
        result=f"{RESULTS}/cells/{CELL}.json",
        model=f"{RESULTS}/cells/{CELL}.safetensors",
    log:
        f"{RESULTS}/logs/train/{CELL}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train/{CELL}.tsv"
    conda:
        "envs/bflp.yaml"
    threads: SETTINGS.processes
    resources:
        gpu=0 if SETTINGS.device == "cpu" else 1,
    params:
        program=train_program,
        job=cell_job,
    shell:
        "{params.program} --job {params.job:q} --processes {threads} --data {input.data:q}"
        " --partition {input.partition:q} > {log:q} 2>&1"


rule evaluate:
    # One job per block of cells: only those are evaluated whose evaluation is missing or of something else. The results,
    # of which figures have the curves; their models come with them.
    input:
        results=lambda wildcards: [
            file
            for cell in PLAN.block(*block_of(wildcards))
            for file in (PLAN.paths.result(cell), *kept_clients(cell))
        ],
        data=ancient(f"{DATA}/{{dataset}}.npz"),
        ood=lambda wildcards: ancient(ood_files(wildcards.dataset)[0]),
        ood_summary=lambda wildcards: ood_files(wildcards.dataset)[1],
    output:
        f"{RESULTS}/evaluated/{BLOCK}.json",
    log:
        f"{RESULTS}/logs/evaluate/{BLOCK}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate/{BLOCK}.tsv"
    conda:
        "envs/bflp.yaml"
    resources:
        gpu=0 if SETTINGS.device == "cpu" else 1,
    params:
        program=program("evaluate", "--settings", SETTINGS.canonical()),
        job=lambda wildcards: PLAN.evaluation_job(*block_of(wildcards)),
    shell:
        "{params.program} --block {wildcards.dataset:q}/{wildcards.partition:q}/{wildcards.clients:q} > {log:q} 2>&1"


rule merge:
    # The results, too: one that is deleted trains again although its block has been evaluated.
    input:
        EVALUATED,
        [PLAN.paths.result(cell) for cell in PLAN.cells],
    output:
        results=f"{RESULTS}/results.csv",
        rounds=f"{RESULTS}/rounds.csv",
        merged=MERGED,
    log:
        f"{RESULTS}/logs/merge.log",
    benchmark:
        f"{RESULTS}/benchmarks/merge.tsv"
    conda:
        "envs/bflp.yaml"
    params:
        program=program("merge", "--settings", SETTINGS.canonical()),
        job=PLAN.summary_job("bflp.results.merged"),
    shell:
        "{params.program} > {log:q} 2>&1"


rule tables:
    input:
        results=f"{RESULTS}/results.csv",
        rounds=f"{RESULTS}/rounds.csv",
        merged=MERGED,
        summaries=expand(f"{DATA}/{{dataset}}.json", dataset=SETTINGS.grid.datasets),
    output:
        [file for file in TABLES if not file.endswith(".html")],
        [page(f"{RESULTS}/tables/{name}.html", "table", "Tables", Table=title) for name, title in TITLES.items()],
    log:
        f"{RESULTS}/logs/tables.log",
    benchmark:
        f"{RESULTS}/benchmarks/tables.tsv"
    conda:
        "envs/bflp.yaml"
    params:
        program=program("tables", "--settings", SETTINGS.canonical()),
        job=PLAN.summary_job("bflp.reporting.tables", "bflp.reporting.formats"),
    shell:
        "{params.program} > {log:q} 2>&1"


def tex_files(wildcards):
    # Before any job: a missing TeX is one line then, not one among a job's messages.
    run_program(lambda: find_latex(f"{RESULTS}/tables/tables.pdf"))
    return [file for file in TABLES if file.endswith(".tex")]


rule tables_pdf:
    input:
        tex_files,
    output:
        f"{RESULTS}/tables/tables.pdf",
    log:
        f"{RESULTS}/logs/tables_pdf.log",
    benchmark:
        f"{RESULTS}/benchmarks/tables_pdf.tsv"
    conda:
        "envs/bflp.yaml"
    params:
        program=program("tables-pdf", "--settings", SETTINGS.canonical()),
        job=lambda wildcards: PLAN.summary_job("bflp.reporting.pdf"),
    shell:
        "{params.program} > {log:q} 2>&1"


rule figures:
    input:
        FIGURES,


rule draw:
    input:
        evaluated=f"{RESULTS}/evaluated/{BLOCK}.json",
        counts=lambda wildcards: PLAN.partition_file(PLAN.block(*block_of(wildcards))[0]).with_suffix(".csv"),
    output:
        [f"{RESULTS}/figures/{BLOCK}/{name}.pdf" for name in figures_of(PLAN)],
        [
            report(
                f"{RESULTS}/figures/{BLOCK}/{name}.svg",
                caption=f"workflow/report/{name}.rst",
                category=lambda wildcards: federation_title(wildcards.partition, wildcards.clients),
                subcategory=lambda wildcards: dataset_title(wildcards.dataset),
                labels={"Figure": figure.title},
            )
            for name, figure in figures_of(PLAN).items()
        ],
    log:
        f"{RESULTS}/logs/figures/{BLOCK}.log",
    benchmark:
        f"{RESULTS}/benchmarks/figures/{BLOCK}.tsv"
    conda:
        "envs/bflp.yaml"
    params:
        program=program("figures", "--settings", SETTINGS.canonical()),
        job=PLAN.figures_job(MODULES),
        title=lambda wildcards: block_title(*block_of(wildcards)),
    shell:
        "{params.program} --block {wildcards.dataset:q}/{wildcards.partition:q}/{wildcards.clients:q} > {log:q} 2>&1"


rule overview:
    input:
        results=f"{RESULTS}/results.csv",
        merged=MERGED,
    output:
        [page(f"{RESULTS}/overview/{name}.html", name, "About this run", Page=title) for name, title in PAGES.items()],
    log:
        f"{RESULTS}/logs/overview.log",
    benchmark:
        f"{RESULTS}/benchmarks/overview.tsv"
    conda:
        "envs/bflp.yaml"
    params:
        program=program("overview", "--settings", SETTINGS.canonical()),
        settings=SETTINGS.canonical(),
        job=PLAN.summary_job("bflp.reporting.overview"),
    shell:
        "{params.program} > {log:q} 2>&1"


rule measure_round_time:
    input:
        data=ancient(f"{DATA}/{{dataset}}.npz"),
        partition=cell_partition,
    output:
        f"{RESULTS}/round_time/{CELL}-processes{{processes}}.json",
    log:
        f"{RESULTS}/logs/round_time/{CELL}-processes{{processes}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/round_time/{CELL}-processes{{processes}}.tsv"
    conda:
        "envs/bflp.yaml"
    # All cores, so that nothing runs beside a measurement.
    threads: workflow.resource_settings.cores or max(SETTINGS.round_time.processes)
    resources:
        gpu=0 if SETTINGS.device == "cpu" else 1,
    params:
        program=program("round-time", "--device", SETTINGS.device),
        job=cell_job,
        rounds=SETTINGS.round_time.rounds,
    shell:
        "{params.program} --job {params.job:q} --processes {wildcards.processes} --rounds {params.rounds}"
        " --data {input.data:q} --partition {input.partition:q} --output {output:q} > {log:q} 2>&1"


rule round_time:
    input:
        [PLAN.paths.round_time(cell, processes) for cell, processes in PLAN.round_time_cells()],
    output:
        f"{RESULTS}/round_time.csv",
        expand(f"{RESULTS}/tables/round_time.{{kind}}", kind=["tex", "md"]),
        page(f"{RESULTS}/tables/round_time.html", "round_time", "Time per round", What="Table"),
    log:
        f"{RESULTS}/logs/round_time.log",
    benchmark:
        f"{RESULTS}/benchmarks/round_time.tsv"
    conda:
        "envs/bflp.yaml"
    params:
        program=program("round-time-table", "--settings", SETTINGS.canonical()),
        job=lambda wildcards: PLAN.summary_job("bflp.reporting.tables", "bflp.reporting.formats"),
    shell:
        "{params.program} > {log:q} 2>&1"


rule round_time_figure:
    input:
        f"{RESULTS}/round_time.csv",
    output:
        f"{RESULTS}/figures/round_time.pdf",
        page(f"{RESULTS}/figures/round_time.svg", "round_time", "Time per round", What="Figure"),
    log:
        f"{RESULTS}/logs/round_time_figure.log",
    benchmark:
        f"{RESULTS}/benchmarks/round_time_figure.tsv"
    conda:
        "envs/bflp.yaml"
    params:
        program=program("figures", "--settings", SETTINGS.canonical()),
        job=lambda wildcards: PLAN.summary_job("bflp.reporting.figures.round_time"),
    shell:
        "{params.program} --round-time {input:q} > {log:q} 2>&1"


rule statistics:
    input:
        results=f"{RESULTS}/results.csv",
        rounds=f"{RESULTS}/rounds.csv",
        merged=MERGED,
    output:
        expand(f"{RESULTS}/tables/{{name}}.{{kind}}", name=["statistics", "statistics_blocks"], kind=["tex", "md"]),
        page(f"{RESULTS}/tables/statistics.html", "statistics", "Statistics", What="Over all blocks"),
        page(f"{RESULTS}/tables/statistics_blocks.html", "statistics", "Statistics", What="Block by block"),
        expand(f"{RESULTS}/figures/{{name}}.pdf", name=["differences", "ranks"]),
        page(f"{RESULTS}/figures/differences.svg", "statistics", "Statistics", What="Differences"),
        page(f"{RESULTS}/figures/ranks.svg", "statistics", "Statistics", What="Average ranks"),
    log:
        f"{RESULTS}/logs/statistics.log",
    benchmark:
        f"{RESULTS}/benchmarks/statistics.tsv"
    conda:
        "envs/bflp.yaml"
    params:
        program=program("statistics", "--settings", SETTINGS.canonical()),
        job=lambda wildcards: PLAN.summary_job("bflp.reporting.statistics.words", "bflp.reporting.figures.rank_diagram"),
        settings=SETTINGS.statistics.model_dump_json(),
    shell:
        "{params.program} > {log:q} 2>&1"


rule comparison:
    input:
        results=f"{RESULTS}/results.csv",
        merged=MERGED,
        published=PUBLISHED,
    output:
        expand(f"{RESULTS}/tables/comparison.{{kind}}", kind=["tex", "md", "csv", "pdf"]),
        page(f"{RESULTS}/tables/comparison.html", "comparison", "Published numbers", What="Table"),
        page(f"{RESULTS}/tables/comparison.svg", "comparison", "Published numbers", What="Figure"),
        f"{RESULTS}/tables/claims.md",
    log:
        f"{RESULTS}/logs/comparison.log",
    benchmark:
        f"{RESULTS}/benchmarks/comparison.tsv"
    conda:
        "envs/bflp.yaml"
    params:
        program=program("comparison", "--settings", SETTINGS.canonical()),
        job=lambda wildcards: PLAN.summary_job("bflp.paper.claims", "bflp.paper.comparison_figure"),
    shell:
        "{params.program} > {log:q} 2>&1"
