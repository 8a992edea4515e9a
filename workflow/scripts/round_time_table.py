"""Collect the measured round times into round_time.csv and the runtime table."""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pandas as pd

from bflp.cli.common import add_settings_arguments, settings_of
from bflp.files import whole_file, write_text
from bflp.grid.plan import Plan
from bflp.reporting.tables import FORMATS, round_time_table, to_markdown
from bflp.runtime.termination import run_script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_settings_arguments(parser)
    plan = Plan(settings_of(parser.parse_args()))
    rows = []
    for cell, processes in plan.round_time_cells():
        measured = json.loads(plan.round_time_file(cell, processes).read_text(encoding="utf-8"))
        seconds, aggregation = pd.Series(measured["train_seconds"]), pd.Series(measured["aggregation_seconds"])
        coordinates = {key: value for key, value in cell.as_dict().items() if key != "seed"}
        rows.append(
            {
                **coordinates,
                "processes": processes,
                "seconds_per_round": seconds.mean(),
                "standard_error": seconds.sem(),
                "aggregation_seconds": aggregation.mean(),
            }
        )
    frame = pd.DataFrame(rows)
    with whole_file(plan.results / "round_time.csv") as temporary:
        frame.to_csv(temporary, index=False)
    table = round_time_table(plan.settings, frame)
    for suffix, render in FORMATS.items():
        write_text(plan.results / "tables" / f"round_time.{suffix}", render(table))
    print(to_markdown(table))


if __name__ == "__main__":
    run_script(main)
