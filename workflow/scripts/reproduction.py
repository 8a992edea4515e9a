"""Make docs/reproduction.md and its figures from the kept results in docs/reproduction, without any training."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.files import write_text
from bflp.paper import comparison_figure as comparison
from bflp.paper import spread_figure as reproduction
from bflp.paper.reproduction import FOLDER, compared, kept, page
from bflp.reporting.figures import style
from bflp.runtime.termination import run_script


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    file = FOLDER.with_suffix(".md")
    write_text(file, page())
    style.save(reproduction.draw(kept(), ("fmnist", "iid", 10)), FOLDER / "spread", ["svg"])
    style.save(comparison.draw(compared("reference")), FOLDER / "comparison", ["svg"])
    print(f"made {file} and its figures from {len(kept())} kept cells")


if __name__ == "__main__":
    run_script(main)
