"""One PDF of several LaTeX tables."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bflp.errors import UserError
from bflp.files import whole_file

INSTALL = (
    "install TeX Live with booktabs and multirow (on Debian and Ubuntu: apt-get install texlive-latex-extra; with "
    "TinyTeX or conda's texlive-core: tlmgr install booktabs multirow)"
)

_DOCUMENT = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{booktabs,multirow,graphicx}
%% Tables one after the other, not one on each page.
\renewcommand{\topfraction}{0.95}
\renewcommand{\floatpagefraction}{0.4}
\makeatletter
\setlength{\@fptop}{0pt}
\setlength{\@fpsep}{3em}
\setlength{\@fpbot}{0pt plus 1fil}
\makeatother
\begin{document}
%s
\end{document}
"""


def find_latex(output: str | Path) -> str:
    """The path of pdflatex. Raises UserError where it is missing, so that `output` cannot be made."""
    program = shutil.which("pdflatex")
    if program is None:
        raise UserError(f"pdflatex is not installed, so {output} cannot be made: {INSTALL}")
    return program


def compile_tables(files: Sequence[Path], output: Path) -> None:
    """Write `output`, a PDF with the tables of all `files`. Raises UserError where TeX is missing or fails."""
    program = find_latex(output)
    for file in files:
        if not file.exists():
            raise UserError(f"there is no table {file}: run snakemake first")
    with tempfile.TemporaryDirectory() as folder:
        for index, file in enumerate(files):
            shutil.copyfile(file, Path(folder, f"table{index}.tex"))
        inputs = "\n".join(f"\\input{{table{index}}}" for index in range(len(files)))
        Path(folder, "tables.tex").write_text(_DOCUMENT % inputs, encoding="utf-8")
        command = [program, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "tables.tex"]
        # A fixed date, so that the same tables give the same file.
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1", "max_print_line": "1000"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
        if done.returncode or "Float too large" in done.stdout:
            raise UserError(_explain(done.stdout, output))
        with whole_file(output) as temporary:
            shutil.copyfile(Path(folder, "tables.pdf"), temporary)


def _explain(log: str, output: Path) -> str:
    missing = re.search(r"File `([^']+)' not found", log)
    if missing:
        return f"TeX lacks {missing[1]}, so {output} cannot be made: {INSTALL}"
    # TeX itself would print what fits a page, and say that all is well.
    too_large = "! a table is higher than a page" if "Float too large" in log else "! no message"
    mistake = next((line for line in log.splitlines() if line.startswith("!")), too_large)
    return f"pdflatex cannot make {output}: {mistake[1:].strip()}"
