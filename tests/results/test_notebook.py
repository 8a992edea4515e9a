"""A final model in a notebook: what its file names and holds, against torch alone, without the product's network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_federation import TinyFederation

from bflp import Model, load
from bflp.datasets import prepared
from bflp.errors import DataError
from bflp.results.file import checksum
from tests.oracles import own_network as own

SHAPES = {name: list(tensor.shape) for name, tensor in own.build((1, 16, 16), 3, width=6).state_dict().items()}
NETWORK = {"network": {"file": own.__file__, "width": 6}}
DENSE, ALL = ["7.weight"], list(SHAPES)


def trained(tiny: TinyFederation, model: str, rule: str | None, **sections: Any) -> tuple[dict[str, Any], Path]:
    """A cell's result, and where it lies as in a folder of results."""
    tiny.run(tiny.job(model, rule, **NETWORK, **sections))
    place = tiny.folder / f"results/cells/tiny/uneven/4/{model}/{rule or 'none'}/seed5.json"
    place.parent.mkdir(parents=True)
    for suffix in (".json", ".safetensors"):
        shutil.copy(tiny.folder / f"cell{suffix}", place.with_suffix(suffix))
    return json.loads(place.read_text()), place


def test_a_deterministic_model(tiny: TinyFederation) -> None:
    result, place = trained(tiny, "FEDAVG", None)
    assert result["network"] == {"input_shape": [1, 16, 16], "labels": 3, "tensors": SHAPES, "gaussian": []}
    module = own.build((1, 16, 16), 3, width=6)
    module.load_state_dict(load_file(place.with_suffix(".safetensors")))
    data, model = prepared.open_prepared(tiny.data_file), load(place)
    images = np.array(data.test_inputs)
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(images).float() / 255).softmax(1).numpy()
        np.testing.assert_allclose(model.module()(torch.from_numpy(images) / 255).softmax(1), expected, atol=1e-6)
    found = model.predict(images)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert 100 * np.mean(found.argmax(1) == data.test_labels) == pytest.approx(result["rounds"][-1]["accuracy"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variational", "gaussian"), [("dense", DENSE), ("last:2", ["0.weight", *DENSE]), ("all", ALL)]
)
def test_a_model_with_a_posterior(tiny: TinyFederation, variational: str, gaussian: list[str]) -> None:
    method = {"base": "FVBWA", "posterior": {"variational": variational}}
    result, place = trained(tiny, "VB", "EAA", models={"VB": method})
    numbers = [name for name in SHAPES if name not in gaussian]
    names = [*numbers, *(f"{name}.{kind}" for kind in ("mean", "log_variance") for name in gaussian)]
    assert result["network"]["gaussian"] == gaussian
    # JSON objects keep their order, which is that of the vector.
    shapes = [SHAPES[name.removesuffix(".mean").removesuffix(".log_variance")] for name in names]
    assert list(result["network"]["tensors"].items()) == list(zip(names, shapes, strict=True))
    tensors = load_file(place.with_suffix(".safetensors"))
    assert tensors.keys() == set(names)
    model = load(place)
    np.testing.assert_array_equal(model.vector, torch.cat([tensors[name].flatten() for name in names]))
    means = {name: tensors[f"{name}.mean" if name in gaussian else name] for name in SHAPES}
    for name, tensor in model.module().state_dict().items():
        assert torch.equal(tensor, means[name])
    images = np.array(prepared.open_prepared(tiny.data_file).test_inputs[:40])
    assert_predicts_as_sampled_weights(model, tensors, gaussian, images)


def assert_predicts_as_sampled_weights(
    model: Model, tensors: dict[str, torch.Tensor], gaussian: list[str], images: np.ndarray
) -> None:
    """Probabilities of weights that are drawn whole, as torch alone does it, agree in the mean, sample by sample."""
    generator, module = torch.Generator().manual_seed(3), own.build((1, 16, 16), 3, width=6).eval()
    inputs, draws, total = torch.from_numpy(images) / 255, 400, torch.zeros(len(images), 3)
    square = torch.zeros_like(total)
    for _ in range(draws):
        weights = {name: tensor for name, tensor in tensors.items() if name in SHAPES}
        for name in gaussian:
            mean, deviation = tensors[f"{name}.mean"], (0.5 * tensors[f"{name}.log_variance"]).exp()
            weights[name] = mean + deviation * torch.randn(mean.shape, generator=generator)
        module.load_state_dict(weights)
        with torch.no_grad():
            probabilities = module(inputs).softmax(1)
        total += probabilities
        square += probabilities**2
    mean = total / draws
    error = ((square / draws - mean**2).clamp_min(1e-8) / draws).sqrt()
    found = torch.from_numpy(model.predict(images, samples=draws, seed=1))
    # Both have an error of their own: five standard errors of the difference, and what a nonlinearity turns
    # independent outputs of a convolution into.
    assert ((found - mean).abs() < 5 * 2**0.5 * error + 2e-3).all()


def test_names_may_be_those_of_folders(tiny: TinyFederation) -> None:
    _, place = trained(tiny, "FEDAVG", None)
    other = tiny.folder / "cells/cells/cells/4/FEDAVG/none/seed5.json"
    other.parent.mkdir(parents=True)
    content = json.loads(place.read_text())
    content["cell"] |= {"dataset": "cells", "partition": "cells"}
    content["environment"]["checksum"] = checksum(content)
    other.write_text(json.dumps(content), encoding="utf-8")
    shutil.copy(place.with_suffix(".safetensors"), other.with_suffix(".safetensors"))
    assert np.array_equal(load(other).vector, load(place).vector)


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not lie in a folder `cells`"):
        load(tmp_path / "seed0.json")
    with pytest.raises(DataError, match="does not lie in a folder `cells`"):
        load(tmp_path / "cells/b/1/M/none/seed0.json")
    with pytest.raises(DataError, match=r"seed0\.json"):
        load(tmp_path / "cells/a/b/1/M/none/seed0.json")
