"""The cells of a grid, their files, and what each of them depends on. Imports no torch: the Snakefile lives on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bflp import aggregators
from bflp.datasets.download import source_hash
from bflp.datasets.registry import BUILT_IN
from bflp.errors import ConfigError
from bflp.files import canonical_json
from bflp.fingerprint import cell_modules, fingerprint, partition_modules
from bflp.settings.schema import VARIATIONAL_MODELS, Settings

NO_AGGREGATOR = "none"
PREPARE_MODULES = ("bflp.datasets.download",)


@dataclass(frozen=True, order=True)
class Cell:
    """One experiment: the six coordinates of the grid."""

    dataset: str
    partition: str
    clients: int
    model: str
    aggregator: str
    seed: int

    @property
    def variational(self) -> bool:
        return self.model in VARIATIONAL_MODELS

    @property
    def weighted_by_data(self) -> bool:
        """Whether clients weigh by their data size (FEDAVG, FVBWA) and not equally (FED, FVBA)."""
        return self.model in ("FEDAVG", "FVBWA")

    def path(self, folder: str | Path, suffix: str) -> Path:
        """The cell's file below `folder`, with the fixed names."""
        parts = f"{self.dataset}/{self.partition}/{self.clients}/{self.model}/{self.aggregator}"
        return Path(folder, f"{parts}/seed{self.seed}{suffix}")

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def __str__(self) -> str:
        return str(self.path("", ""))

    @classmethod
    def parse(cls, text: str) -> Cell:
        """From "dataset/partition/clients/model/aggregator/seedN". Raises ConfigError."""
        parts = text.strip("/").split("/")
        if len(parts) != 6 or not parts[2].isdecimal() or not parts[5].removeprefix("seed").isdecimal():
            raise ConfigError(f"the cell {text!r} must be dataset/partition/clients/model/aggregator/seedN")
        return cls(parts[0], parts[1], int(parts[2]), parts[3], parts[4], int(parts[5].removeprefix("seed")))


class Plan:
    """The cells that the settings name, in the order of the tables, and each cell's job."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # Asked for several times, and of thousands of cells; all seeds of a cell share all but the seed.
        self._jobs: dict[Cell, str] = {}
        self._shared: dict[Cell, dict[str, Any]] = {}

    @property
    def results(self) -> Path:
        return Path(self.settings.results_dir)

    @cached_property
    def cells(self) -> list[Cell]:
        return list(self._cells())

    def datasets(self) -> list[str]:
        """All data sets that are read: the grid's, and the out-of-distribution one."""
        ood = self.settings.evaluation.out_of_distribution
        return list(dict.fromkeys([*self.settings.grid.datasets, *([ood] if ood else [])]))

    def ood_file(self) -> Path | None:
        """The prepared file of the out-of-distribution data set."""
        ood = self.settings.evaluation.out_of_distribution
        return self.data_file(ood) if ood else None

    def rows(self) -> list[tuple[str, str]]:
        """(model, aggregator): the rows of the tables."""
        grid = self.settings.grid
        return [
            (model, rule)
            for model in grid.models
            for rule in (grid.aggregators if model in VARIATIONAL_MODELS else [NO_AGGREGATOR])
        ]

    def _cells(self) -> Iterator[Cell]:
        grid = self.settings.grid
        for dataset in grid.datasets:
            for partition in grid.partitions:
                for clients in grid.clients:
                    for model, rule in self.rows():
                        for seed in grid.seeds:
                            yield Cell(dataset, partition, clients, model, rule, seed)

    def round_time_cells(self) -> list[tuple[Cell, int]]:
        """The rows and numbers of processes that the target `round_time` measures, with the first seed."""
        wanted = self.settings.round_time
        return [
            (
                Cell(wanted.dataset, wanted.partition, wanted.clients, model, rule, self.settings.grid.seeds[0]),
                processes,
            )
            for model, rule in self.rows()
            for processes in wanted.processes
        ]

    def round_time_file(self, cell: Cell, processes: int) -> Path:
        return cell.path(self.results / "round_time", f"-processes{processes}.json")

    def blocks(self) -> list[tuple[str, str, int]]:
        """(dataset, partition, clients): cells that are compared with one another, a folder of figures each."""
        return list(dict.fromkeys((cell.dataset, cell.partition, cell.clients) for cell in self.cells))

    def block(self, dataset: str, partition: str, clients: int) -> list[Cell]:
        """The cells of a block, in the order of the tables."""
        wanted = (dataset, partition, clients)
        return [cell for cell in self.cells if (cell.dataset, cell.partition, cell.clients) == wanted]

    def result_file(self, cell: Cell) -> Path:
        return cell.path(self.results / "cells", ".json")

    def model_file(self, cell: Cell) -> Path:
        return cell.path(self.results / "cells", ".safetensors")

    def data_file(self, dataset: str) -> Path:
        return Path(self.settings.data_dir, f"{dataset}.npz")

    def made_file(self, dataset: str) -> Path:
        """Beside the prepared file: what it was made from, and by what code."""
        return Path(self.settings.data_dir, f"{dataset}.made.json")

    def partition_file(self, cell: Cell) -> Path:
        return Path(
            self.results,
            "partitions",
            cell.dataset,
            cell.partition,
            str(cell.clients),
            f"seed{cell.seed}.npz",
        )

    def log_file(self, cell: Cell) -> Path:
        return cell.path(self.results / "logs" / "train", ".log")

    def checkpoint_folder(self, cell: Cell) -> Path:
        return cell.path(self.results / "checkpoints", "")

    def cell_settings(self, cell: Cell) -> dict[str, Any]:
        """What determines the cell's result, and nothing else: a setting that it does not read is left out."""
        settings = self.settings
        augment = settings.augment(cell.dataset)
        result: dict[str, Any] = {
            "augment": augment.model_dump() if augment else None,
            "partition": settings.partitions[cell.partition].model_dump(mode="json"),
            "setup": settings.setups[cell.clients].model_dump(),
            "training": settings.training.model_dump(),
            "evaluation": settings.evaluation.model_dump(exclude={"monte_carlo_samples"}),
        }
        if cell.variational:
            result["evaluation"]["monte_carlo_samples"] = settings.evaluation.monte_carlo_samples
            posterior = settings.posterior.model_dump(mode="json", exclude={"ppa_population"})
            reads = aggregators.reads(cell.aggregator)
            if "population" in reads:
                posterior["ppa_population"] = settings.posterior.ppa_population
            if "arithmetic" in reads:
                result["aggregation"] = settings.aggregation
            result["posterior"] = posterior
        return result

    def job(self, cell: Cell) -> str:
        """All that the cell's training program needs to know and depends on, as one canonical string."""
        if cell not in self._jobs:
            family = replace(cell, seed=0)
            if family not in self._shared:
                self._shared[family] = self._job(family)
            self._jobs[cell] = canonical_json({**self._shared[family], "cell": cell.as_dict()})
        return self._jobs[cell]

    def _job(self, cell: Cell) -> dict[str, Any]:
        job: dict[str, Any] = {"cell": cell.as_dict(), "settings": self.cell_settings(cell)}
        if cell.variational and cell.aggregator in self.settings.aggregator_files:
            job["aggregator_file"] = self.settings.aggregator_files[cell.aggregator]
        job["fingerprint"] = fingerprint(cell_modules(job), job.get("aggregator_file"))
        job["partition_fingerprint"] = fingerprint(partition_modules(job["settings"]["partition"]["strategy"]))
        return job

    def identity(self) -> str:
        """A short hash of all jobs and the data: the same only for the same grid, settings, data and code."""
        jobs = [self.prepare_job(dataset) for dataset in self.datasets()] + [self.job(cell) for cell in self.cells]
        return hashlib.sha256(canonical_json(jobs).encode()).hexdigest()[:16]

    def summary_job(self, module: str) -> str:
        """What merging and tables depend on besides the cells: the grid's order, and the code from `module` on."""
        settings = self.settings.model_dump(mode="json", include={"grid", "setups", "tables"})
        return canonical_json({**settings, "fingerprint": fingerprint((module,))})

    def figures_job(self) -> str:
        """What the figures of a block depend on besides its cells: the rows and seeds of the grid, and the code."""
        rows, seeds = self.rows(), self.settings.grid.seeds
        return canonical_json(
            {"rows": rows, "seeds": seeds, "fingerprint": fingerprint(("bflp.reporting.figures.loading",))}
        )

    def prepare_job(self, dataset: str) -> str:
        """All that a data set's prepared file depends on, as one canonical string."""
        source = self.settings.source(dataset)
        if source is not None:
            # Not the path: the same content under another name is the same data.
            origin: Any = source_hash(Path(source), self.data_file(dataset))
        else:
            origin = [BUILT_IN[dataset].torchvision_class, BUILT_IN[dataset].split]
        return canonical_json({"origin": origin, "fingerprint": fingerprint(PREPARE_MODULES)})

    def partition_job(self, dataset: str, partition: str, clients: int, seed: int) -> str:
        """All that a partition depends on besides the labels, as one canonical string."""
        settings = self.settings.partitions[partition]
        job = {
            "dataset": dataset,
            "name": partition,
            "clients": clients,
            "seed": seed,
            "settings": settings.model_dump(mode="json"),
            "fingerprint": fingerprint(partition_modules(settings.strategy)),
        }
        return canonical_json(job)
