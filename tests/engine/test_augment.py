"""Augmentation: every output is one of the possible crops and flips, and all of them are about equally frequent."""

import numpy as np
import pytest
import torch
from scipy import stats

from bflp.engine.augment import augment


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images_of(batch, channels, height, width, seed=1):
    return torch.rand((batch, channels, height, width), generator=torch.Generator().manual_seed(seed))


def candidates(image, padding):
    """[C, H, W] -> {(row, column, flipped): crop}: all crops of the reflect-padded image, as they are and mirrored."""
    _, height, width = image.shape
    padded = np.pad(image.numpy(), ((0, 0), (padding, padding), (padding, padding)), mode="reflect")
    crops = {}
    for row in range(2 * padding + 1):
        for column in range(2 * padding + 1):
            crop = padded[:, row : row + height, column : column + width]
            crops[row, column, False], crops[row, column, True] = crop, crop[:, :, ::-1]
    return crops


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 16, 20)])
def test_every_output_is_a_crop_or_its_mirror_image(shape):
    images = images_of(60, *shape)
    before = images.clone()
    outputs = augment(images, crop_padding=4, flip_probability=0.5, generator=generator())
    assert outputs.shape == images.shape and outputs.dtype == images.dtype
    assert torch.equal(images, before)
    chosen = set()
    for image, output in zip(images, outputs.numpy(), strict=True):
        matches = [where for where, crop in candidates(image, 4).items() if np.array_equal(crop, output)]
        assert len(matches) == 1
        chosen.update(matches)
    assert len(chosen) > 40  # each image by its own draw


def test_crops_and_flips_are_uniform():
    image = images_of(1, 1, 12, 12)  # a smaller one, padded, has parts that are their own mirror images
    draws = 16_200  # 100 for each of 81 x 2
    outputs = augment(image.expand(draws, 1, 12, 12), crop_padding=4, flip_probability=0.5, generator=generator())
    where = {crop.tobytes(): index for index, crop in enumerate(candidates(image[0], 4).values())}
    assert len(where) == 162
    counts = np.bincount([where[output.tobytes()] for output in outputs.numpy()], minlength=162)
    assert stats.chisquare(counts).pvalue > 0.01


@pytest.mark.parametrize("probability", [0.0, 0.2, 1.0])
def test_flip_probability(probability):
    images = images_of(2000, 1, 16, 16)
    outputs = augment(images, crop_padding=0, flip_probability=probability, generator=generator())
    flipped = (outputs == images.flip(3)).flatten(1).all(dim=1)
    kept = (outputs == images).flatten(1).all(dim=1)
    assert bool((flipped ^ kept).all())
    assert stats.binomtest(int(flipped.sum()), 2000, probability).pvalue > 0.01


def test_no_padding_and_no_flip_is_the_identity():
    images = images_of(5, 3, 16, 18)
    assert torch.equal(augment(images, crop_padding=0, flip_probability=0.0, generator=generator()), images)


def test_padding_without_flip():
    image = images_of(1, 2, 8, 9)
    crops = {crop.tobytes() for (_, _, flipped), crop in candidates(image[0], 2).items() if not flipped}
    outputs = augment(image.expand(300, -1, -1, -1), crop_padding=2, flip_probability=0.0, generator=generator())
    assert {output.tobytes() for output in outputs.numpy()} == crops


def test_the_generator_decides():
    images = images_of(50, 1, 16, 16)
    one, again, other = (augment(images, 4, 0.5, generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_generator_goes_on():
    images, same = images_of(50, 1, 16, 16), generator()
    assert not torch.equal(augment(images, 4, 0.5, same), augment(images, 4, 0.5, same))
