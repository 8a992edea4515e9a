"""Prepare data sets.

Downloads them, or takes them from raw files or a source file, and writes an .npz of arrays each.
"""

import argparse
from pathlib import Path

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from
from bflp.datasets.download import is_current, prepare_built_in, prepare_source
from bflp.datasets.prepared import summary_file
from bflp.datasets.registry import BUILT_IN
from bflp.grid.plan import Plan
from bflp.provenance.reasons import preparation, record_preparation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", nargs="+", help="names of data sets, built in or in the config")
    add_settings_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    for dataset in arguments.dataset:
        prepare(plan, dataset)


def prepare(plan: Plan, dataset: str) -> None:
    """Write a data set's prepared file, and say so. Raises UserError."""
    source, output = plan.settings.source(dataset), plan.paths.data(dataset)
    job = plan.prepare_job(dataset)
    remarks: list[str] = []
    if source is not None:
        remarks = prepare_source(Path(source), output)
    else:
        prepare_built_in(dataset, BUILT_IN[dataset], Path(plan.settings.data_dir, "raw"), output)
    record_preparation(plan, dataset, job)
    print("; ".join([f"{dataset}: prepared in {output}", *remarks]))


def prepare_if_needed(plan: Plan, dataset: str) -> None:
    """As `prepare`, where the data set is not there, or was made from something else or by other code."""
    file, source = plan.paths.data(dataset), plan.settings.source(dataset)
    there = file.exists() and summary_file(file).exists()
    outdated = preparation(plan, dataset) is not None or (source is not None and not is_current(Path(source), file))
    if not there or outdated:
        prepare(plan, dataset)
