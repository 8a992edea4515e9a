"""Prepare a data set: download it, or take it from raw files or a source file, and write one .npz of arrays."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.datasets.download import prepare_built_in, prepare_source
from bflp.datasets.registry import BUILT_IN
from bflp.errors import ConfigError
from bflp.grid.plan import Plan
from bflp.provenance.reasons import record_preparation
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="+", help="names of data sets, built in or in the config")
    add_settings_arguments(parser)
    arguments = parser.parse_args()
    plan = Plan(settings_of(arguments))
    for dataset in arguments.dataset:
        source, output = plan.settings.source(dataset), plan.data_file(dataset)
        if source is None and dataset not in BUILT_IN:
            raise ConfigError(f"{dataset} is no built-in data set and has no source: in the config")
        job = plan.prepare_job(dataset)
        if source is not None:
            prepare_source(Path(source), output)
        else:
            prepare_built_in(dataset, BUILT_IN[dataset], Path(plan.settings.data_dir, "raw"), output)
        record_preparation(plan, dataset, job)
        print(f"{dataset}: prepared in {output}")


if __name__ == "__main__":
    run_script(main)
