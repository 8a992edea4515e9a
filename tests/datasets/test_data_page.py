"""docs/data.md, followed to the letter: its programs write files that are accepted."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from source_arrays import good

from bflp.datasets.source import load_source
from bflp.partition import files

PAGE = Path(__file__).resolve().parents[2].joinpath("docs/data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the programs of the page ran, one after the other."""
    folder = tmp_path_factory.mktemp("page")
    for split, shades in (("train", (10, 20, 30)), ("test", (40,))):
        for label, colour in (("cat", (1, 0, 0)), ("dog", (0, 1, 0))):
            (folder / "photos" / split / label).mkdir(parents=True)
            for at, shade in enumerate(shades):
                pixels = np.full((40, 50, 3), np.array(colour) * shade, np.uint8)
                Image.fromarray(pixels).save(folder / "photos" / split / label / f"{at}.png")
    given = {name: np.moveaxis(value, 1, -1) if "images" in name else value[:, None] for name, value in good(3).items()}
    np.savez(folder / "pathmnist.npz", **given, val_images=given["test_images"], val_labels=given["test_labels"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for language, content in BLOCKS:
            if language == "python":
                exec(content, {})
    return folder


def test_all_source_files_are_accepted(folder):
    sources = {
        settings["source"]
        for language, content in BLOCKS
        if language == "yaml"
        for settings in yaml.safe_load(content).get("datasets", {}).values()
    }
    assert sources == {"mine.npz", "pathmnist.npz"}
    shapes = {"mine": (3, 20, 24), "pathmnist": (3, 16, 16), "photos": (3, 32, 32), "table": (12,)}
    for name, shape in shapes.items():
        assert load_source(folder / f"{name}.npz").input_shape == shape


def test_photos_have_their_colours_and_labels(folder):
    photos = load_source(folder / "photos.npz")
    assert photos.train_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert photos.train_inputs[:, :, 5, 7].tolist() == [
        [10, 0, 0],
        [20, 0, 0],
        [30, 0, 0],
        [0, 10, 0],
        [0, 20, 0],
        [0, 30, 0],
    ]
    assert photos.test_inputs[:, :, 5, 7].tolist() == [[40, 0, 0], [0, 40, 0]]


def test_the_split_is_as_its_lists_say(folder):
    file = folder / "split.npz"
    settings = {"strategy": "file", "file": str(file), "sha256": files.split_hash(file)}
    job = {"dataset": "mine", "name": "mine", "clients": 3, "seed": 0, "settings": settings}
    made = files.make(np.zeros(6, int), job, "")
    assert [made.client(client).tolist() for client in range(3)] == [[0, 3, 5], [1, 2], [4]]
