"""What holds for each file in bflp/algorithms."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch
from algorithms.toy import Toy

from bflp import algorithms
from bflp.algorithms import fedadagrad, fedadam, fedavgm, feddyn, fednova, fedprox, fedyogi, scaffold
from bflp.settings.methods import Posterior
from bflp.settings.schema import load

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("algorithm", [fedprox, fednova, fedavgm, fedadagrad, fedadam, fedyogi, scaffold, feddyn])
def test_in_single_precision(algorithm):
    """As cells are trained; what is remembered is float64 all the same, so that running sums stay sums."""
    found, expected = (Toy(algorithm, dtype=dtype, momentum=0.9) for dtype in (torch.float32, torch.float64))
    assert found.rounds(5) == pytest.approx(expected.rounds(5), rel=1e-5)
    assert found.server.model.dtype == torch.float32
    states = [found.server.state, *found.states.values()]
    assert all(tensor.dtype == torch.float64 for state in states for tensor in state.values())


def test_their_settings_are_read_without_torch():
    names = ", ".join(f"bflp.algorithms.{name}" for name in algorithms.names())
    program = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("example", sorted((ROOT / "examples/methods").glob("*.yaml")), ids=lambda path: path.stem)
def test_its_example_is_a_grid(example):
    settings = load([ROOT / "config.yaml", example])
    methods = [settings.method(name) for name in settings.grid.models]
    kinds = [method.posterior.kind for method in methods if method.posterior]
    assert example.stem in [*kinds, *(method.algorithm["name"] for method in methods)]
    assert Path(settings.source(settings.grid.datasets[0])) == Path("examples/data/fmnist-mini.npz")


def test_none_is_left_out_of_the_example_of_all():
    settings = load([ROOT / "config.yaml", ROOT / "examples/every-method.yaml"])
    methods = [settings.method(name) for name in settings.grid.models]
    assert {method.algorithm["name"] for method in methods} == {*algorithms.names()}
    kinds = {method.posterior.kind if method.posterior else "none" for method in methods}
    assert kinds == {*get_args(Posterior.model_fields["kind"].annotation)}
