"""ro-crate-metadata.json: what an archive holds, in the words of RO-Crate 1.1 and Workflow RO-Crate 1.0.

https://w3id.org/ro/crate/1.1 and https://w3id.org/workflowhub/workflow-ro-crate/1.0. Only what is known is said: who
the authors are, and under which licence results may be used, is not known here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_SNAKEMAKE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
_MIT = "https://spdx.org/licenses/MIT"
_RUN = "#run"
_LICENSE = "#license"
_FOLDERS = {
    "config/": ("Config files", "As they were given, in their order"),
    "cells/": ("Results of cells", "A JSON file per cell: curves over communication rounds, settings, versions, times"),
    "evaluations/": ("Evaluations", "A JSON file per cell: metrics of its final model"),
    "tables/": ("Tables", "LaTeX, Markdown and HTML"),
    "figures/": ("Figures", "PDF and SVG"),
    "data/": ("Data sets", "Sizes and content hashes, without images"),
    "own/": ("Own files", "Rules, algorithms and networks from outside the workflow"),
    "code/": ("The workflow", "Snakefile and Python package"),
}
_FILES = {
    "README.md": ("What is here", "text/markdown"),
    "results.csv": ("A row per cell: metrics of the final model and times", "text/csv"),
    "rounds.csv": ("A row per cell and evaluated round", "text/csv"),
    "settings.json": ("All settings, defaults included", "application/json"),
    "archive.json": ("Rows of the tables, versions and machines", "application/json"),
    "checksums.sha256": ("sha256 of every other file", "text/plain"),
    "requirements.txt": ("The Python packages, pinned", "text/plain"),
}
_MADE = ("results.csv", "rounds.csv", "cells/", "evaluations/", "tables/", "figures/")


def metadata(names: Collection[str], title: str, description: str, day: str) -> dict[str, Any]:
    """The JSON-LD document. names: of the archive's files; day: the ISO date of the last result."""
    folders = [folder for folder in _FOLDERS if any(name.startswith(folder) for name in names)]
    files = [name for name in _FILES if name in names]
    workflow = "code/Snakefile"
    graph: list[dict[str, Any]] = [
        {
            "@id": "ro-crate-metadata.json",
            "@type": "CreativeWork",
            "about": _at("./"),
            "conformsTo": [
                _at("https://w3id.org/ro/crate/1.1"),
                _at("https://w3id.org/workflowhub/workflow-ro-crate/1.0"),
            ],
        },
        {
            "@id": "./",
            "@type": "Dataset",
            "name": title,
            "description": description,
            "datePublished": day,
            "license": _at(_LICENSE),
            "hasPart": [_at(name) for name in (*files, *folders, workflow)],
            "mainEntity": _at(workflow),
            "mentions": _at(_RUN),
        },
        {
            "@id": workflow,
            "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
            "name": "bflp",
            "description": "Federated Bayesian deep learning experiments as a Snakemake workflow",
            "encodingFormat": "text/plain",
            "programmingLanguage": _at(_SNAKEMAKE),
            "license": _at(_MIT),
        },
        {
            "@id": _SNAKEMAKE,
            "@type": "ComputerLanguage",
            "name": "Snakemake",
            "identifier": _at("https://doi.org/10.1093/bioinformatics/bts480"),
            "url": _at("https://snakemake.readthedocs.io"),
        },
        {
            "@id": _LICENSE,
            "@type": "CreativeWork",
            "name": "Licence of the results",
            "description": "Not stated in this archive; where it is published says how it may be used.",
        },
        {"@id": _MIT, "@type": "CreativeWork", "name": "MIT License", "identifier": _at(_MIT)},
        {
            "@id": _RUN,
            "@type": "CreateAction",
            "name": "The run of the workflow",
            "instrument": _at(workflow),
            "object": _at("config/"),
            "result": [_at(name) for name in _MADE],
        },
    ]
    for name in files:
        what, kind = _FILES[name]
        about = {"about": _at("./")} if name == "README.md" else {}
        graph.append({"@id": name, "@type": "File", "name": what, "encodingFormat": kind, **about})
    for folder in folders:
        what, detail = _FOLDERS[folder]
        graph.append({"@id": folder, "@type": "Dataset", "name": what, "description": detail})
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}


def _at(identifier: str) -> dict[str, str]:
    return {"@id": identifier}
