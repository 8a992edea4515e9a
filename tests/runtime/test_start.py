"""What the start of a cell's job imports: torch and what training needs, and no more."""

import subprocess
import sys

import pytest

HEAVY = ("bflp.settings.schema", "bflp.grid.plan", "yaml", "pandas", "matplotlib", "scipy.stats", "torchvision")


@pytest.mark.slow
def test_a_cell_starts_without_what_only_plans_tables_and_figures_need() -> None:
    code = f"import sys, bflp.cli.train, bflp.runtime.cell; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
