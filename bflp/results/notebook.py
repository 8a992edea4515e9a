"""What a user imports in a notebook: `from bflp import load, load_results`. docs/notebook.md shows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bflp.engine.metrics.registry import METRICS
from bflp.errors import DataError
from bflp.grid.cell import Cell
from bflp.grid.plan import Plan
from bflp.results.file import read_result
from bflp.results.frame import classes_frame, frame, read_folder, rounds_frame
from bflp.settings.schema import Settings

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch
    from numpy.typing import NDArray

__all__ = ["METRICS", "Cell", "Model", "Plan", "Settings", "load", "load_classes", "load_results", "load_rounds"]


def load_results(folder: str | Path) -> pd.DataFrame:
    """All results below a folder of results as a tidy data frame, a row per cell, whatever settings made them."""
    return frame(read_folder(Path(folder)))


def load_rounds(folder: str | Path) -> pd.DataFrame:
    """All evaluated rounds below a folder of results: a row per cell and round with its metrics."""
    return rounds_frame(read_folder(Path(folder)))


def load_classes(folder: str | Path) -> pd.DataFrame:
    """The final models' accuracy by class below a folder of results: a row per cell and label."""
    return classes_frame(read_folder(Path(folder)))


class Model:
    """A cell's final global model. cell, settings: of its result; vector [D]: its parameters."""

    def __init__(self, result_file: Path) -> None:
        from bflp.engine.settings import CellSettings
        from bflp.engine.work import network_of
        from bflp.runtime.evaluate import load_model

        folder, *names = result_file.with_suffix("").parts[-7:]
        if folder != "cells" or len(names) < 6:
            raise DataError(f"{result_file} does not lie in a folder `cells` of results")
        self.cell = Cell.parse("/".join(names))
        result = read_result(result_file, self.cell)
        if result.network is None:
            raise DataError(f"{result_file} is of an earlier version, which did not record the network's inputs")
        self.settings = result.settings
        typed = CellSettings.of(self.cell.seed, self.cell.aggregator, result.settings)
        self._network = network_of(typed, tuple(result.network.input_shape), result.network.labels)
        self.vector = load_model(result_file.with_suffix(".safetensors"), self._network.layout)

    def predict(self, inputs: NDArray[Any], samples: int = 10, seed: int = 0) -> NDArray[np.float32]:
        """Probabilities [N, L], averaged over Monte Carlo samples. inputs: images uint8 [N, C, H, W] or features."""
        import numpy as np
        import torch

        from bflp.engine.batches import in_unit_interval
        from bflp.engine.inputs import EVALUATION_CHUNK

        generator, parts = torch.Generator().manual_seed(seed), []
        for start in range(0, len(inputs), EVALUATION_CHUNK):
            batch = in_unit_interval(torch.from_numpy(np.array(inputs[start : start + EVALUATION_CHUNK])))
            parts.append(self._network.predict(self.vector, batch.float(), samples, generator)[0].numpy())
        return np.concatenate(parts)

    def module(self) -> torch.nn.Module:
        """A plain torch module with the means as its weights; inputs float32 in [0, 1]."""
        return self._network.module(self.vector)


def load(result: str | Path) -> Model:
    """The final model of a cell, from its result's JSON; the .safetensors lies beside it. Raises DataError."""
    return Model(Path(result))
