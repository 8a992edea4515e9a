"""The cells that the settings name, and what each of them depends on. Imports no torch: the Snakefile lives on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bflp.datasets.download import source_hash
from bflp.datasets.registry import BUILT_IN
from bflp.engine.metrics.registry import filed
from bflp.errors import ConfigError
from bflp.files import canonical_json
from bflp.fingerprint import fingerprint
from bflp.grid.cell import NO_AGGREGATOR, Cell
from bflp.grid.coverage import (
    PREPARE_MODULES,
    evaluation_modules,
    outside_files,
    partition_modules,
    training_fingerprint,
)
from bflp.grid.job import Job
from bflp.grid.paths import Paths
from bflp.partition.files import split_hash
from bflp.settings.methods import Method
from bflp.settings.schema import Settings
from bflp.settings.values import identity

Block = tuple[str, str, str]  # data set, partition, set-up


class Plan:
    """The cells of a grid, in the order of the tables, and each cell's job."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.paths = Paths(Path(settings.results_dir), Path(settings.data_dir))
        # Asked for several times, and for thousands of cells; all seeds of a cell share all but the seed.
        self._jobs: dict[Cell, str] = {}
        self._shared: dict[Cell, dict[str, Any]] = {}
        self._evaluations: dict[tuple[str, ...], dict[str, Any]] = {}
        self._methods: dict[str, Method] = {}

    @property
    def results(self) -> Path:
        return self.paths.results

    @cached_property
    def cells(self) -> list[Cell]:
        grid = self.settings.grid
        return [
            Cell(dataset, partition, clients, model, rule, seed)
            for dataset in grid.datasets
            for partition in grid.partitions
            for clients in grid.clients
            for model, rule in self.rows
            for seed in grid.seeds
        ]

    @cached_property
    def _by_block(self) -> dict[Block, list[Cell]]:
        blocks: dict[Block, list[Cell]] = {}
        for cell in self.cells:
            blocks.setdefault(cell.block, []).append(cell)
        return blocks

    @cached_property
    def rows(self) -> list[tuple[str, str]]:
        """(model, aggregator): what is trained in each block."""
        return [
            (name, rule)
            for name in self.settings.trained()
            for rule in self.method(name).aggregators or (NO_AGGREGATOR,)
        ]

    @cached_property
    def shown_rows(self) -> list[tuple[str, str]]:
        """(model, aggregator): the rows of the tables, where a sweep that chooses is one."""
        sweep_of = {row: name for name in self.choosing for row in self.sweeps[name]}
        return list(dict.fromkeys((sweep_of.get(model, model), rule) for model, rule in self.rows))

    @cached_property
    def choosing(self) -> dict[str, str]:
        """The sweeps of the grid that choose one of their rows, and by what."""
        chosen = {name: self.settings.chooses(name) for name in self.settings.grid.models}
        return {name: metric for name, metric in chosen.items() if metric}

    @cached_property
    def sweeps(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The sweeps of the grid: their rows, with the value of each setting that is swept."""
        settings = self.settings
        return {name: settings.rows_of(name) for name in settings.grid.models if settings.models[name].sweep}

    def method(self, name: str) -> Method:
        """What a model's name stands for; that of a sweep: its first row."""
        if name not in self._methods:
            self._methods[name] = self.settings.method(next(iter(self.settings.rows_of(name))))
        return self._methods[name]

    def has_posterior(self, model: str) -> bool:
        """Whether a method's global model is a posterior."""
        return self.method(model).posterior is not None

    def blocks(self) -> list[Block]:
        """Cells that are compared with one another: a folder of figures and an index of evaluations each."""
        return list(self._by_block)

    def block(self, dataset: str, partition: str, clients: str) -> list[Cell]:
        """The cells of a block, in the order of the tables."""
        return self._by_block.get((dataset, partition, clients), [])

    def datasets(self) -> list[str]:
        """All data sets that are read: the grid's, and those that evaluations hold beside them."""
        names = self.settings.grid.datasets
        beside = (self.settings.out_of_distribution(name) for name in names)
        return list(dict.fromkeys([*names, *(name for name in beside if name)]))

    def partition_file(self, cell: Cell) -> Path:
        """Where a cell's partition lies."""
        number, seed = self.settings.setups[cell.clients].clients, self.partition_seed(cell.partition, cell.seed)
        return self.paths.partition(cell.dataset, cell.partition, number, seed)

    def _partition_settings(self, partition: str) -> dict[str, Any]:
        settings = identity(self.settings.partitions[partition])
        # A user's own split is what its file holds.
        own = settings.get("file")
        return {**settings, "sha256": split_hash(Path(own))} if own else settings

    def partition_seed(self, partition: str, seed: int) -> int:
        """The seed that a partition is drawn with in the cells of a seed."""
        fixed = self.settings.partitions[partition].seed
        return seed if fixed is None else fixed

    def known(self, cell: Cell) -> Cell:
        """The cell, where settings say what its names are. Raises ConfigError."""
        if cell in self._jobs or cell in self._known:
            return cell
        settings = self.settings
        names = (
            (cell.dataset, [*BUILT_IN, *(name for name, entry in settings.datasets.items() if entry.source)]),
            (cell.partition, settings.partitions),
            (cell.model, settings.trained()),
        )
        wrong = [name for name, known in names if name not in known]
        if wrong or cell.clients not in settings.setups or cell.row not in self.rows:
            raise ConfigError(f"the cell {cell} is not one that the config describes: see grid, setups and models")
        return cell

    def known_block(self, dataset: str, partition: str, clients: str) -> Block:
        """The block, where the grid has it. Raises ConfigError."""
        if (dataset, partition, clients) not in self._by_block:
            raise ConfigError(f"{dataset}/{partition}/{clients} is not in the grid (dataset/partition/clients)")
        return dataset, partition, clients

    @cached_property
    def _known(self) -> frozenset[Cell]:
        return frozenset(self.cells)

    def evaluation_text(self, cell: Cell) -> str:
        """What a training program needs to know to evaluate its model, as one string."""
        ood = self.settings.out_of_distribution(cell.dataset)
        file = str(self.paths.data(ood)) if ood else None
        return canonical_json({**self.evaluation_of(cell), "ood_file": file})

    def round_time_cells(self) -> Iterator[tuple[Cell, int]]:
        """The rows and numbers of processes that the target `round_time` measures, with the first seed."""
        wanted, grid = self.settings.round_time, self.settings.grid
        named = (("dataset", grid.datasets), ("partition", grid.partitions), ("clients", grid.clients))
        # Where the config does not say which, and the grid has not the default: the grid's first.
        chosen = (
            getattr(wanted, key) if key in wanted.model_fields_set or getattr(wanted, key) in names else names[0]
            for key, names in named
        )
        dataset, partition, clients = chosen
        for row in self.rows:
            for processes in wanted.processes:
                yield Cell(dataset, partition, clients, *row, grid.seeds[0]), processes

    def cell_settings(self, cell: Cell) -> dict[str, Any]:
        """What determines the cell's result, and nothing else: a setting that it does not read is left out."""
        settings, method = self.settings, self.method(cell.model)
        augment = settings.augment(cell.dataset)
        result: dict[str, Any] = {
            "weights": method.weights,
            "augment": identity(augment) if augment else None,
            "partition": self._partition_settings(cell.partition),
            "setup": identity(settings.setups[cell.clients]),
            "training": identity(method.training(cell.dataset)),
            "evaluation": {"every": settings.evaluation.every},
        }
        chosen = {
            "algorithm": (method.algorithm, "fedavg"),
            "optimiser": (method.optimiser, "sgd"),
            "network": (method.network(cell.dataset), "lenet"),
        }
        # Defaults are left out, so that a result from before there was a choice stays what it is.
        result |= {key: mapping for key, (mapping, usual) in chosen.items() if mapping != {"name": usual}}
        if method.posterior is not None:
            result["evaluation"]["monte_carlo_samples"] = settings.evaluation.monte_carlo_samples
            result["posterior"] = identity(method.posterior)
        if cell.aggregator != NO_AGGREGATOR:
            rule, own = settings.rule(cell.aggregator)
            if "arithmetic" in rule.reads:
                result["aggregation"] = settings.aggregation
            if own:
                result["rule"] = own
        return result

    def job(self, cell: Cell) -> str:
        """All that the cell's training program needs to know and depends on, as one canonical string."""
        if cell not in self._jobs:
            family = replace(cell, seed=0)
            if family not in self._shared:
                self._shared[family] = self._job(family)
            self._jobs[cell] = canonical_json({**self._shared[family], "cell": cell.as_dict()})
        return self._jobs[cell]

    def cell_identity(self, cell: Cell, hashes: Mapping[str, str]) -> str:
        """Under what the cell's files are kept. hashes: from `provenance.state.data_hashes`."""
        return Job.parse(self.job(cell)).identity(hashes.get(cell.dataset, ""))

    def _job(self, cell: Cell) -> dict[str, Any]:
        job: dict[str, Any] = {"cell": cell.as_dict(), "settings": self.cell_settings(cell)}
        own = {
            "aggregator": self.settings.rule_file(cell.aggregator),
            **{role: job["settings"].get(role, {}).get("file") for role in ("algorithm", "network")},
        }
        job["files"] = {role: file for role, file in own.items() if file}
        job["fingerprint"] = training_fingerprint(job)
        job["partition_fingerprint"] = fingerprint(partition_modules(job["settings"]["partition"]["strategy"]))
        return job

    def evaluation_job(self, dataset: str, partition: str, clients: str) -> str:
        """All that the evaluations of a block depend on besides its cells' models and data."""
        cells = self.block(dataset, partition, clients)
        rows = {cell.row: self.evaluation_of(cell) for cell in cells}
        seeds = list(dict.fromkeys(cell.seed for cell in cells))
        return canonical_json({"seeds": seeds, "rows": [[*row, job] for row, job in rows.items()]})

    def evaluation_of(self, cell: Cell) -> dict[str, Any]:
        """The settings and the code that an evaluation of the cell's final model depends on."""
        if (key := (*cell.block, *cell.row)) not in self._evaluations:
            own, job = self.evaluation_settings(cell), json.loads(self.job(cell))
            code = fingerprint(evaluation_modules(job, filed(), own.get("final", {})), outside_files(job, "network"))
            self._evaluations[key] = {"settings": own, "fingerprint": code}
        return self._evaluations[key]

    def evaluation_settings(self, cell: Cell) -> dict[str, Any]:
        """The settings that an evaluation of the cell's final model depends on."""
        evaluation = self.settings.evaluation
        own: dict[str, Any] = {"ece_bins": evaluation.ece_bins}
        if self.has_posterior(cell.model):
            own["monte_carlo_samples"] = evaluation.final.monte_carlo_samples or evaluation.monte_carlo_samples
        if ood := self.settings.out_of_distribution(cell.dataset):
            own["out_of_distribution"] = ood
        if evaluation.keep_predictions:
            own["keep_predictions"] = True
        if asked := evaluation.final.asked():
            own["final"] = asked
        return own

    def identity(self) -> str:
        """A short hash of all jobs and the data: the same only for the same grid, settings, data and code."""
        jobs = [self.prepare_job(dataset) for dataset in self.datasets()] + [self.job(cell) for cell in self.cells]
        jobs += [self.evaluation_job(*block) for block in self.blocks()]
        jobs += [canonical_json(self._sweeps())] if self._sweeps() else []
        return hashlib.sha256(canonical_json(jobs).encode()).hexdigest()[:16]

    def summary_job(self, *modules: str) -> str:
        """What merging and tables depend on besides the cells: the grid's order, and the code from `modules` on."""
        marks = {"statistics"} if self.settings.tables.mark_differences else set()
        settings = self.settings.model_dump(mode="json", include={"grid", "setups", "tables", *marks})
        return canonical_json({**settings, **self._sweeps(), "rows": self.rows, "fingerprint": fingerprint(modules)})

    def _sweeps(self) -> dict[str, Any]:
        """What depends on the grid's sweeps beside its cells: nothing where there is none."""
        chosen = {"sweeps": self.sweeps, "choosing": self.choosing, "metrics": self.settings.tables.metrics}
        return chosen if self.sweeps else {}

    def figures_job(self, figures: tuple[str, ...]) -> str:
        """What the figures of a block depend on besides its cells: the rows and seeds of the grid, and the code.

        figures: the modules that draw.
        """
        rows, seeds = self.rows, self.settings.grid.seeds
        code = fingerprint(("bflp.reporting.figures.loading", *figures))
        return canonical_json({**self._sweeps(), "rows": rows, "seeds": seeds, "fingerprint": code})

    def prepare_job(self, dataset: str) -> str:
        """All that a data set's prepared file depends on, as one canonical string."""
        source = self.settings.source(dataset)
        if source is not None:
            # Not the path: the same content under another name is the same data.
            origin: Any = source_hash(Path(source), self.paths.data(dataset))
        elif dataset not in BUILT_IN:
            raise ConfigError(f"{dataset} is not a built-in data set and has no source: in the config")
        else:
            origin = [BUILT_IN[dataset].torchvision_class, BUILT_IN[dataset].split]
        return canonical_json({"origin": origin, "fingerprint": fingerprint(PREPARE_MODULES)})

    def partition_job(self, dataset: str, partition: str, clients: int, seed: int) -> str:
        """All that a partition depends on besides the labels, as one canonical string."""
        if partition not in self.settings.partitions:
            raise ConfigError(f"the partition {partition} is not in the config: see partitions")
        settings = self._partition_settings(partition)
        job = {
            "dataset": dataset,
            "name": partition,
            "clients": clients,
            "seed": seed,
            "settings": settings,
            "fingerprint": fingerprint(partition_modules(settings["strategy"])),
        }
        return canonical_json(job)

    def partition_job_of(self, cell: Cell) -> str:
        """As `partition_job`, of the partition that a cell reads."""
        number, seed = self.settings.setups[cell.clients].clients, self.partition_seed(cell.partition, cell.seed)
        return self.partition_job(cell.dataset, cell.partition, number, seed)
