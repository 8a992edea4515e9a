"""Which modules of this project a process has imported, as a check on what fingerprints cover."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# How a rule outside the package is named when it is loaded; its content is covered as a file.
RULE_PREFIX = "bflp_rule_"


def loaded_modules() -> set[str]:
    """The names of all loaded modules whose files lie in this project; installed packages, also in .venv, do not."""
    inside, installed = f"{ROOT}/", f"{Path(sys.prefix)}/"
    return {
        name
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None))
        and file.startswith(inside)
        and not file.startswith(installed)
        and name not in ("__main__", "__mp_main__")
        and not name.startswith(RULE_PREFIX)
    }
