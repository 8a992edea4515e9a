"""Merge the results of all cells into results.csv, and those of all rounds into rounds.csv.

Each result is checked: it must be whole, of its cell, and made with the present settings, code and data.
"""

import argparse

from bflp.cli.arguments import add_settings_arguments
from bflp.cli.common import plan_from
from bflp.provenance.state import finished_of, refuse_unfit, states
from bflp.results.merged import write_merged

add_arguments = add_settings_arguments


def run(arguments: argparse.Namespace) -> None:
    plan = plan_from(arguments)
    found = states(plan)
    refuse_unfit(found)
    finished = finished_of(found)
    print(f"{write_merged(plan, finished)}: {len(finished)} cells")
