"""Collect the measured round times into round_time.csv and the runtime table."""

import argparse
import json

import pandas as pd

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from
from bflp.errors import DataError
from bflp.files import whole_file
from bflp.reporting.formats import write_table
from bflp.reporting.markdown import to_markdown
from bflp.reporting.tables import round_time_table

PARTS = ("train", "aggregation")

add_arguments = add_settings_arguments


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    rows = []
    for cell, processes in plan.round_time_cells():
        file = plan.paths.round_time(cell, processes)
        try:
            measured = json.loads(file.read_text(encoding="utf-8"))
            seconds, aggregation = (pd.Series(measured[f"{part}_seconds"], dtype=float) for part in PARTS)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} is damaged ({error}): delete it and run snakemake round_time again") from None
        rows.append(
            {
                **{key: value for key, value in cell.as_dict().items() if key != "seed"},
                "processes": processes,
                "seconds_per_round": seconds.mean(),
                "standard_error": seconds.sem(),
                "aggregation_seconds": aggregation.mean(),
            }
        )
    frame = pd.DataFrame(rows)
    with whole_file(plan.results / "round_time.csv") as temporary:
        frame.to_csv(temporary, index=False)
    table = round_time_table(plan, frame)
    write_table(table, plan.results / "tables")
    print(to_markdown(table))
