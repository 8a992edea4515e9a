"""Make docs/reproduction.md and its figures.

From the kept results in docs/reproduction, without any training.
"""

import argparse

from bflp.files import write_text
from bflp.paper import comparison_figure, spread_figure
from bflp.paper.full_scale import FOLDER, compared, kept
from bflp.paper.reproduction import page
from bflp.reporting.figures import style


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(arguments: argparse.Namespace) -> None:
    file = FOLDER.with_suffix(".md")
    write_text(file, page())
    style.save(spread_figure.draw(kept(), ("fmnist", "iid", "10")), FOLDER / "spread", ["svg"])
    style.save(comparison_figure.draw(compared("reference")), FOLDER / "comparison", ["svg"])
    print(f"made {file} and its figures from {len(kept())} kept cells")
