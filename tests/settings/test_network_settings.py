"""What a config may say of a network: mistakes are told before anything runs, and nothing of a file is run for that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bflp.errors import ConfigError
from bflp.settings.schema import Settings

GRID = {"datasets": ["fmnist"], "partitions": ["iid"], "clients": [10], "models": ["FED"], "seeds": [0]}
REST = {"partitions": {"iid": {"strategy": "iid"}}, "setups": {10: {"fraction": 1.0, "rounds": 1}}}


def parsed(network: Any) -> dict[str, Any]:
    return Settings.parse({"grid": GRID, **REST, "network": network}).method("FED").network("fmnist")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "given by its name, or by a file"),
        ({"name": "mlp", "file": "x.py"}, "given by its name, or by a file"),
        ({"name": "resnet"}, "network.name: unknown 'resnet' - did you mean 'resnet20'"),
        ({"name": "mlp", "size": [3]}, "network.size: unknown key - did you mean 'sizes'"),
        ({"name": "mlp", "sizes": [10, 0]}, "network.sizes.1: must be greater than 0 (is 0)"),
        ({"name": "mlp", "sizes": [1.5]}, "network.sizes.0: must be a valid integer"),
        ({"name": "mlp", "sizes": 10}, "network.sizes: must be a list (is 10)"),
        ({"name": "mlp", "activation": "rely"}, "network.activation: unknown 'rely' - did you mean 'relu'"),
        ({"name": "cnn", "width": 3}, "network.width: unknown key"),
        ({"file": "absent.py"}, "network.file: absent.py cannot be read"),
        ({"file": "."}, "cannot be read"),
        ({"file": "broken.py"}, "broken.py, line 2: "),
        ({"file": "empty.py"}, "empty.py must define a function build"),
        ({"file": "bytes.py"}, "bytes.py is not a Python source"),
        ({"file": "mine.py", "depth": 3}, "network.depth: unknown key - did you mean 'width'?"),
        ({"file": "mine.py", "rate": 3}, "network.rate: unknown key (known: width, wide)"),
        ({"name": "lenet", "width": 3}, "network.width: unknown key (known: none)"),
        (3, "must be a mapping"),
    ],
)
def test_specs_refused(spec: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("def build(image_shape, labels):\n    return (\n")
    Path("empty.py").write_text("x = 3\n")
    Path("bytes.py").write_bytes(b"x = '\xff'\n")
    Path("mine.py").write_text("def build(image_shape, labels, width=3, *, wide=False):\n    return None\n")
    with pytest.raises(ConfigError) as caught:
        parsed(spec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_good_specs_pass_and_nothing_is_run(tmp_path: Path) -> None:
    own, rest = tmp_path / "own.py", tmp_path / "rest.py"
    own.write_text("raise SystemExit\ndef build(image_shape, labels, *, width):\n    pass\n")
    rest.write_text("def build(image_shape, labels, **settings):\n    pass\n")
    for spec in (
        *({"name": "lenet"}, {"name": "mlp", "sizes": [3], "activation": "relu"}, {"name": "resnet20"}),
        *({"file": str(own), "width": 3}, {"file": str(rest), "anything": 1}),
    ):
        assert parsed(spec) == spec
    assert parsed("cnn") == {"name": "cnn"}


def test_checking_imports_no_torch() -> None:
    code = (
        "import sys; from bflp.settings.networks import checked_network\n"
        "checked_network({'name': 'mlp', 'sizes': [3]}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
