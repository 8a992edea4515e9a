"""The ways to split a training set: what holds for every split, and how the random shares are distributed."""

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bflp.partition import SplitError

DRAWN = ("iid", "dirichlet", "labels", "quantity")
STRATEGIES = {
    "iid": {},
    "dirichlet": {"alpha": 0.5, "min_samples": 3},
    "labels": {"labels_per_client": 2},
    "quantity": {"alpha": 0.7, "min_samples": 3},
    "natural": {},
    "file": {},
}
property_test = settings(deadline=None, max_examples=60, derandomize=True)


def split(strategy, labels, clients, seed=0, **overrides):
    module = importlib.import_module(f"bflp.partition.{strategy}")
    generator = np.random.default_rng(seed)
    return module.split(np.asarray(labels), clients, {**STRATEGIES[strategy], **overrides}, generator)


def assert_each_sample_once(parts, samples):
    assert np.sort(np.concatenate(parts)).tolist() == list(range(samples))


@st.composite
def labels_and_clients(draw, samples_per_client=30):
    """Labels in random order and proportions, and few enough clients."""
    clients = draw(st.integers(1, 8))
    names = draw(st.integers(2, 6))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = samples_per_client * max(clients, names) + draw(st.integers(0, 40))
    proportions = generator.dirichlet(np.full(names, 5.0))
    return generator.permutation(np.repeat(np.arange(names), 1 + generator.multinomial(size, proportions))), clients


@pytest.mark.parametrize("strategy", DRAWN)
@property_test
@given(data=labels_and_clients(), seed=st.integers(0, 2**32 - 1))
def test_every_sample_goes_to_exactly_one_client(strategy, data, seed):
    labels, clients = data
    # One of 6 labels must find a holder.
    overrides = {"labels_per_client": -(-6 // clients)} if strategy == "labels" else {}
    if strategy == "labels" and overrides["labels_per_client"] > len(np.unique(labels)):
        overrides["labels_per_client"] = len(np.unique(labels))
    parts = split(strategy, labels, clients, seed, **overrides)
    assert len(parts) == clients
    assert all(len(part) for part in parts)
    assert_each_sample_once(parts, len(labels))


@pytest.mark.parametrize("strategy", DRAWN)
def test_the_seed_decides_and_nothing_else(strategy):
    labels = np.random.default_rng(5).integers(0, 4, 400)
    one, again, other = (split(strategy, labels, 5, seed) for seed in (1, 1, 2))
    for part, same in zip(one, again, strict=True):
        np.testing.assert_array_equal(part, same)
    assert any(set(part) != set(another) for part, another in zip(one, other, strict=True))


# iid


@property_test
@given(st.integers(1, 60), st.integers(0, 200))
def test_iid_sizes_differ_by_one_at_most(clients, more):
    sizes = [len(part) for part in split("iid", np.zeros(clients + more, dtype=np.int64), clients)]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == clients + more


def test_iid_sends_every_sample_to_every_client_alike():
    owners = np.empty((2000, 12), dtype=np.int64)
    for seed, row in enumerate(owners):
        for client, part in enumerate(split("iid", np.zeros(12), 3, seed)):
            row[part] = client
    counts = np.array([np.bincount(column, minlength=3) for column in owners.T])
    assert stats.chisquare(counts, axis=1).pvalue.min() > 1e-3


# dirichlet


@property_test
@given(
    data=labels_and_clients(),
    alpha=st.floats(0.3, 20),
    min_samples=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_dirichlet_keeps_min_samples_and_stops_filling_full_clients(data, alpha, min_samples, seed):
    labels, clients = data
    parts = split("dirichlet", labels, clients, seed, alpha=alpha, min_samples=min_samples)
    assert min(map(len, parts)) >= min_samples
    counts = np.array([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])
    before = np.cumsum(counts, axis=1) - counts  # what a client held when a label's turn came, in the labels' order
    assert (counts[before >= len(labels) / clients] == 0).all()


def test_dirichlet_shares_of_a_label_follow_their_distribution():
    """A client's share of the first label, before any client is full, is Beta(alpha, (clients - 1) alpha)."""
    labels, alpha, clients = np.repeat(np.arange(8), 500), 0.8, 5
    shares = []
    for seed in range(400):
        parts = split("dirichlet", labels, clients, seed, alpha=alpha, min_samples=1)
        shares.append((labels[parts[seed % clients]] == 0).sum() / 500)
    assert stats.kstest(shares, stats.beta(alpha, (clients - 1) * alpha).cdf).pvalue > 0.01


def test_dirichlet_treats_all_clients_alike_and_small_alpha_is_more_uneven():
    labels, clients, seeds = np.repeat(np.arange(4), 100), 5, 150
    unevenness = []
    for alpha in (0.2, 1.0, 10.0, 1000.0):
        shares = np.empty((seeds, clients, 4))
        for seed in range(seeds):
            for client, part in enumerate(split("dirichlet", labels, clients, seed, alpha=alpha, min_samples=1)):
                shares[seed, client] = np.bincount(labels[part], minlength=4) / 100
        means, errors = shares.mean(axis=0), shares.std(axis=0) / np.sqrt(seeds)
        # The last client gets what the truncation of the others' counts leaves: half a sample of 100 for each of them.
        assert (np.abs(means - 1 / clients) < 4 * errors + 0.02).all()
        unevenness.append(shares.std(axis=1).mean())
    assert unevenness == sorted(unevenness, reverse=True)
    assert unevenness[0] > 10 * unevenness[-1]


def test_dirichlet_with_a_tiny_alpha_ends():
    """All the weight of a label can fall on clients that are full; those with room then share it."""
    labels = np.repeat(np.arange(10), 30)
    parts = split("dirichlet", labels, 3, alpha=1e-6, min_samples=1)
    assert_each_sample_once(parts, 300)
    counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
    assert (counts[np.cumsum(counts, axis=1) - counts >= 100] == 0).all()


@pytest.mark.parametrize("strategy", ["dirichlet", "quantity"])
def test_redrawing_is_bounded_and_says_what_clashes(strategy):
    # Each of 20 clients needs 4 of 100 samples, but alpha gives nearly all to one or two.
    labels = np.zeros(100, dtype=np.int64)
    with pytest.raises(SplitError) as raised:
        split(strategy, labels, 20, alpha=0.01, min_samples=4)
    text = str(raised.value)
    for part in ("alpha 0.01", "20 clients", "min_samples 4", "100 training samples", "1000 draws"):
        assert part in text
    assert "raise alpha, lower min_samples, or use fewer clients" in text


@pytest.mark.parametrize("strategy", ["dirichlet", "quantity"])
def test_more_min_samples_than_there_are_is_said_at_once(strategy):
    with pytest.raises(SplitError, match=r"alpha 0\.3, 11 clients and min_samples 10 .*11 x 10 samples are more than"):
        split(strategy, np.zeros(109, dtype=np.int64), 11, alpha=0.3, min_samples=10)
    # Exactly as many as there are can be had.
    assert len(split(strategy, np.zeros(10, dtype=np.int64), 1, alpha=1.0, min_samples=10)[0]) == 10


# quantity


@property_test
@given(
    clients=st.integers(1, 8),
    alpha=st.floats(0.5, 20),
    min_samples=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_quantity_keeps_min_samples(clients, alpha, min_samples, seed):
    parts = split("quantity", np.zeros(clients * 40), clients, seed, alpha=alpha, min_samples=min_samples)
    assert min(map(len, parts)) >= min_samples
    assert_each_sample_once(parts, clients * 40)


def test_quantity_sizes_follow_their_distribution():
    samples, clients, alpha = 20_000, 4, 1.5
    # One sample at least shuts out next to nothing of this Beta(alpha, (clients - 1) alpha).
    shares = [
        len(split("quantity", np.zeros(samples), clients, seed, alpha=alpha, min_samples=1)[seed % clients]) / samples
        for seed in range(400)
    ]
    assert stats.kstest(shares, stats.beta(alpha, (clients - 1) * alpha).cdf).pvalue > 0.01


def test_quantity_labels_are_mixed_as_in_the_whole():
    labels = np.repeat([0, 1], [3000, 1000])
    for part in split("quantity", labels, 4, alpha=2.0, min_samples=300):
        # 4.5 standard deviations of the share of label 1 in a random subset
        assert abs(labels[part].mean() - 0.25) < 4.5 * np.sqrt(0.25 * 0.75 / len(part))


# labels


@property_test
@given(
    names=st.integers(2, 10),
    clients=st.integers(1, 15),
    data=st.data(),
    seed=st.integers(0, 2**32 - 1),
)
def test_labels_per_client_is_exact_and_labels_are_held_evenly(names, clients, data, seed):
    fewest = -(-names // clients)
    per_client = data.draw(st.integers(fewest, names))
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(names) * 3, 40))  # labels need not be 0, 1, 2
    parts = split("labels", labels, clients, seed, labels_per_client=per_client)
    held = [set(labels[part].tolist()) for part in parts]
    assert [len(each) for each in held] == [per_client] * clients
    assert_each_sample_once(parts, len(labels))
    holders = [sum(name in each for each in held) for name in np.unique(labels)]
    assert max(holders) - min(holders) <= 1
    for name, count in zip(np.unique(labels), holders, strict=True):
        shares = [int((labels[part] == name).sum()) for part in parts if (labels[part] == name).any()]
        assert len(shares) == count
        assert max(shares) - min(shares) <= 1


def test_more_labels_per_client_than_labels():
    with pytest.raises(SplitError, match="labels_per_client 4 is more than the 3 labels"):
        split("labels", np.repeat(np.arange(3), 10), 5, labels_per_client=4)


def test_too_few_labels_per_client_to_hold_all():
    with pytest.raises(SplitError, match="2 clients with labels_per_client 2 cannot hold all 5 labels"):
        split("labels", np.repeat(np.arange(5), 10), 2, labels_per_client=2)


def test_a_label_with_fewer_samples_than_holders():
    """Else a client would have fewer labels than promised, or no sample at all."""
    labels = np.repeat([0, 1], [50, 3])
    with pytest.raises(SplitError, match=r"label 1 has 3 samples.* 5 clients"):
        split("labels", labels, 10, labels_per_client=1)
    # One sample for each is enough.
    assert_each_sample_once(split("labels", np.repeat([0, 1], [50, 5]), 10, labels_per_client=1), 55)


# clients without data


@pytest.mark.parametrize("strategy", ["dirichlet", "quantity"])
def test_clients_may_be_empty_when_nothing_is_asked_of_them(strategy):
    labels = np.repeat(np.arange(10), 100)
    parts = split(strategy, labels, 100, alpha=0.05, min_samples=0)
    assert len(parts) == 100
    assert 0 < sum(len(part) == 0 for part in parts) < 100
    assert_each_sample_once(parts, 1000)


@pytest.mark.parametrize("strategy", ["dirichlet", "quantity"])
def test_the_first_draw_is_taken_when_nothing_is_asked(strategy):
    """Where `min_samples` asks for no more than the first draw gives, it makes no difference."""
    labels = np.repeat(np.arange(4), 50)
    for one, other in zip(
        split(strategy, labels, 4, alpha=5.0, min_samples=0),
        split(strategy, labels, 4, alpha=5.0, min_samples=1),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


# natural


def test_natural_clients_are_those_of_the_data():
    owners = np.array([40, 7, 7, 19, 40, 7])
    parts = split("natural", np.zeros(6), 3, train_clients=owners)
    assert [part.tolist() for part in parts] == [[1, 2, 5], [3], [0, 4]]
    many = split("natural", np.zeros(300), 3, train_clients=np.arange(300) % 3)
    assert [part.tolist() for part in many] == [list(range(client, 300, 3)) for client in range(3)]


def test_natural_needs_the_right_number_of_clients_and_their_names():
    with pytest.raises(SplitError, match="the data come from 2 clients, not 3: set up 2 clients"):
        split("natural", np.zeros(4), 3, train_clients=np.array([1, 1, 5, 5]))
    with pytest.raises(SplitError, match="needs `train_clients`"):
        split("natural", np.zeros(4), 3, train_clients=None)


# file


def test_a_split_of_ones_own():
    parts = split("file", np.zeros(5), 3, indices=np.array([4, 0, 2, 1, 3]), offsets=np.array([0, 2, 2, 5]))
    assert [part.tolist() for part in parts] == [[4, 0], [], [2, 1, 3]]


@pytest.mark.parametrize(
    ("indices", "offsets", "text"),
    [
        ([0, 1, 2, 3], [0, 2, 4], "each of the training samples 0 to 4 once"),
        ([0, 1, 2, 3, 3], [0, 2, 5], "each of the training samples 0 to 4 once"),
        ([0, 1, 2, 3, 5], [0, 2, 5], "each of the training samples 0 to 4 once"),
        ([0, 1, 2, 3, 4], [0, 2, 3, 5], "of 3 clients, not 2: set up 3 clients"),
        ([0, 1, 2, 3, 4], [1, 2, 5], "go up from 0 to 5"),
        ([0, 1, 2, 3, 4], [0, 2, 4], "go up from 0 to 5"),
        ([0, 1, 2, 3, 4], [0, 7, 5], "go up from 0 to 5"),
    ],
)
def test_a_wrong_split_of_ones_own(indices, offsets, text):
    with pytest.raises(SplitError, match=text):
        split("file", np.zeros(5), 2, indices=np.array(indices), offsets=np.array(offsets))
