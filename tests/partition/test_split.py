"""Splits by the strategy's name: bits that must stay, and what is held out of each client."""

import numpy as np
import pytest
from scipy import stats

from bflp.fingerprint import import_closure
from bflp.partition import SplitError, files
from bflp.partition.split import held_out, make_parts, split
from bflp.rng import numpy_generator

LABELS = np.random.default_rng(7).permutation(np.repeat(np.arange(10), np.arange(100, 200, 10)))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"strategy": "iid"}, "94bae431460e07fcb55b635ace57a55b3d302a0bcaf86a181c74eca127d05f03"),
        (
            {"strategy": "dirichlet", "alpha": 0.5, "min_samples": 10},
            "0b4a449321cca98c65ceb21c60fad634c43ccf6d98cb31bbf06580606bab9c8e",
        ),
        (
            {"strategy": "labels", "labels_per_client": 2},
            "5f8a6b116464b22ed74204aa19f6147e8c5e0dc0bd58e7b35c496b848965c973",
        ),
        (
            {"strategy": "quantity", "alpha": 0.5, "min_samples": 10},
            "e5bbd71fe6ee7c808221624d91db53329a6e1bc0d059b2eb504c8c90faec480d",
        ),
    ],
)
def test_splits_keep_their_bits(settings, expected):
    """Results that were published record these hashes: a partition of the same settings must stay the same."""
    job = {"dataset": "t", "name": "p", "clients": 10, "seed": 3, "settings": settings}
    assert files.make(LABELS, job, "d" * 64).content_hash() == expected


@pytest.mark.parametrize("strategy", ["iid", "dirichlet", "labels", "quantity", "natural", "file"])
def test_what_splits_knows_neither_files_nor_errors(strategy):
    """An edit of a message or of the form of a file must not make partitions again."""
    closure = import_closure(("bflp.partition.split", f"bflp.partition.{strategy}"))
    own = {"bflp.partition.split", f"bflp.partition.{strategy}", "bflp.partition.redraw"}
    assert {module for module in closure if module.count(".") > 0} <= {"bflp.partition", "bflp.rng", *own}


def test_more_clients_than_samples():
    generator = np.random.default_rng(0)
    with pytest.raises(SplitError, match="4 clients are more than the 3 training samples"):
        make_parts(np.zeros(3, int), 4, "iid", {}, generator)
    parts = make_parts(np.zeros(3, int), 4, "quantity", {"alpha": 1.0, "min_samples": 0}, generator)
    assert sum(map(len, parts)) == 3


def test_held_out_takes_its_share_and_leaves_one():
    sizes = [0, 1, 2, 3, 10, 101]
    starts = np.cumsum([0, *sizes])
    parts = [np.arange(start, start + size) for start, size in zip(starts[:-1], sizes, strict=True)]
    for share, counts in ((0.2, [0, 0, 0, 1, 2, 20]), (0.99, [0, 0, 1, 2, 9, 100]), (0.5, [0, 0, 1, 2, 5, 50])):
        kept, held = held_out(parts, share, np.random.default_rng(0))
        assert [len(part) for part in held] == counts
        for whole, left, out in zip(parts, kept, held, strict=True):
            assert sorted([*left, *out]) == whole.tolist()
            assert (np.diff(left) > 0).all()
            assert (np.diff(out) > 0).all()


def test_what_is_held_out_has_draws_of_its_own():
    parts, none = split(LABELS, 4, 5, {"strategy": "iid"})
    assert none is None
    found = split(LABELS, 4, 5, {"strategy": "iid", "held_out": 0.3})
    for halves in zip(found, held_out(parts, 0.3, numpy_generator(5, "held out")), strict=True):
        for one, other in zip(*halves, strict=True):
            np.testing.assert_array_equal(one, other)


def test_every_sample_is_held_out_alike():
    generator, counts = np.random.default_rng(0), np.zeros(20)
    for _ in range(4000):
        _, (out,) = held_out([np.arange(20)], 0.25, generator)
        counts[out] += 1
    assert counts.sum() == 4000 * 5
    # Five of twenty without replacement: a count's variance is 19/20 times that of the chi-square test's multinomial,
    # times 15/19, so that the statistic is smaller by this factor.
    statistic = ((counts - 1000) ** 2 / 1000).sum() / (15 / 20 * 20 / 19)
    assert 0.001 < stats.chi2(19).sf(statistic) < 0.999
