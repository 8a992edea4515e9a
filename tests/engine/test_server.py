"""Which clients train, what they weigh, and how their vectors become one."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from bflp.engine.errors import NotFiniteError
from bflp.engine.local import Chosen
from bflp.engine.round import Federation
from bflp.engine.server import Aggregator, aggregation_weights, select_clients
from bflp.errors import UserError
from bflp.networks.lenet import LeNetLayout
from bflp.runtime.pool import SerialExecutor
from bflp.runtime.rule import CheckedRule

RULES = ("EAA", "GAA", "AALV", "PPA", "CF")
SIZES = np.array([10, 30, 60])


# Which clients


@pytest.mark.parametrize(
    ("clients", "fraction", "count"),
    [(10, 1.0, 10), (100, 0.1, 10), (100, 0.25, 25), (10, 0.01, 1), (3, 1e-9, 1), (7, 0.5, 4), (1, 0.3, 1)],
)
def test_number_of_selected_clients(clients, fraction, count):
    settings = SimpleNamespace(seed=0, fraction=fraction)
    for round_ in range(1, 6):
        selected = select_clients(settings, round_, np.ones(clients, dtype=int))
        assert len(selected) == len(set(selected)) == count
        assert selected == sorted(selected)
        assert set(selected) <= set(range(clients))
        assert all(type(client) is int for client in selected)


def selected(seed, round_, clients, fraction):
    return select_clients(SimpleNamespace(seed=seed, fraction=fraction), round_, np.ones(clients, dtype=int))


def test_selection_depends_on_seed_and_round_only():
    assert selected(3, 7, 100, 0.1) == selected(3, 7, 100, 0.1)
    assert len({tuple(selected(seed, round_, 100, 0.1)) for seed in range(5) for round_ in range(20)}) == 100


def test_every_client_is_drawn_alike():
    counts = Counter(client for round_ in range(2000) for client in selected(1, round_, 20, 0.1))
    assert stats.chisquare([counts[client] for client in range(20)]).pvalue > 0.01


def test_clients_without_data_are_never_drawn():
    """Half of those with data, though half of all would be three."""
    sizes = np.array([5, 0, 9, 0, 7, 1])
    drawn = [select_clients(SimpleNamespace(seed=0, fraction=0.5), round_, sizes) for round_ in range(200)]
    assert {len(clients) for clients in drawn} == {2}
    assert {client for clients in drawn for client in clients} == {0, 2, 4, 5}


# What they weigh


def test_aggregation_weights():
    assert aggregation_weights(SIZES, by_data=True).tolist() == [0.1, 0.3, 0.6]
    np.testing.assert_allclose(aggregation_weights(SIZES, by_data=False), [1 / 3] * 3, rtol=1e-15)
    assert aggregation_weights(np.array([4]), by_data=True).tolist() == [1.0]


# How their vectors become one


class Combining:
    """With the network's layout for the tiny data set; the previous model is all zeros."""

    def __init__(self, settings, file=None):
        self.layout = LeNetLayout((1, 16, 16), 3, settings.posterior is not None)
        rule = CheckedRule(settings, file) if settings.posterior else None
        self.aggregator = Aggregator(settings, self.layout, rule)

    def combine(self, vectors, sizes, round_):
        return self.aggregator.combine(vectors, sizes, round_, torch.zeros(self.layout.size))


def aggregator(tiny, model, rule=None, **overrides):
    return Combining(tiny.settings(model, rule, **overrides))


def vectors_of(layout, deterministic, means=(0, 0, 0), log_variances=(0, 0, 0)):
    """[3, D]: each stretch of a client's vector filled with one number."""
    vectors = np.empty((3, layout.size), dtype=np.float32)
    for stretch, values in (
        (layout.deterministic, deterministic),
        (layout.means, means),
        (layout.log_variances, log_variances),
    ):
        vectors[:, stretch] = np.array(values)[:, None]
    return vectors


def unique(model, stretch):
    values = torch.unique(model[stretch])
    assert len(values) == 1
    return float(values[0])


@pytest.mark.parametrize(("model", "expected"), [("FED", 3.0), ("FEDAVG", 4.3)])
def test_deterministic_models_average(tiny, model, expected):
    combine = aggregator(tiny, model)
    result = combine.combine(vectors_of(combine.layout, [1, 2, 6]), SIZES, 1)
    assert result.dtype == torch.float32 and result.shape == (combine.layout.size,)
    assert unique(result, slice(None)) == np.float32(expected)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("model", "expected"), [("FVBA", 3.0), ("FVBWA", 4.3)])
def test_deterministic_tensors_average_in_every_rule(tiny, model, rule, expected):
    """(1 + 2 + 6) / 3, and 0.1 * 1 + 0.3 * 2 + 0.6 * 6."""
    combine = aggregator(tiny, model, rule)
    vectors = vectors_of(combine.layout, [1, 2, 6], [5, -5, 7], [-1, 1, 0])
    result = combine.combine(vectors, SIZES, 1)
    assert unique(result, combine.layout.deterministic) == np.float32(expected)
    assert bool(torch.isfinite(result).all())


@pytest.mark.parametrize(
    ("model", "rule", "mean", "variance"),
    [
        # Means 1, 2, 6 and variances 1, 2, 4; weights 0.1, 0.3, 0.6.
        ("FVBWA", "EAA", 4.3, 0.1 + 0.6 + 2.4),
        ("FVBWA", "GAA", 4.3, 0.01 + 0.18 + 1.44),
        ("FVBWA", "AALV", 4.3, 2**0.3 * 4**0.6),
        # beta * precision: 0.1, 0.15, 0.15
        ("FVBWA", "CF", (0.1 + 0.3 + 0.9) / 0.4, 0.6 / 0.4),
        ("FVBA", "EAA", 3, 7 / 3),
        ("FVBA", "CF", (1 + 1 + 1.5) / 1.75, 1 / 1.75),
    ],
)
def test_posteriors_follow_the_rule_with_the_model_s_weights(tiny, model, rule, mean, variance):
    combine = aggregator(tiny, model, rule)
    vectors = vectors_of(combine.layout, [0, 0, 0], [1, 2, 6], np.log([1, 2, 4]))
    result = combine.combine(vectors, SIZES, 1)
    assert unique(result, combine.layout.means) == pytest.approx(mean, rel=1e-6)
    assert unique(result, combine.layout.log_variances) == pytest.approx(np.log(variance), rel=1e-6)


def test_a_posterior_without_a_rule_is_refused(tiny):
    """And is never what the memory held before."""
    combine = aggregator(tiny, "FVBA", "EAA")
    combine.aggregator.rule = None
    with pytest.raises(NotFiniteError, match="averaging"):
        combine.combine(vectors_of(combine.layout, [1, 2, 6]), SIZES, 1)


def test_settings_reach_the_rule(tiny):
    vectors = vectors_of(LeNetLayout((1, 16, 16), 3, True), [0, 0, 0], log_variances=[-8, -8, -8])
    combine = aggregator(tiny, "FVBA", "EAA", aggregation="reference")
    result = combine.combine(vectors, SIZES, 1)
    assert unique(result, combine.layout.log_variances) == pytest.approx(-8 + np.log(5 / 3), rel=1e-6)
    bounds = {"log_variance": {"bounds": [-2, 8]}}
    combine = aggregator(tiny, "FVBA", "EAA", posterior=bounds)
    assert unique(combine.combine(vectors, SIZES, 1), combine.layout.log_variances) == -2
    # A population of 10^9 hardly varies, one of 10 does.
    scatter = []
    for population in (10**9, 10):
        combine = aggregator(tiny, "FVBA", "PPA", aggregators={"PPA": {"population": population}})
        scatter.append(float(combine.combine(vectors, SIZES, 1)[combine.layout.log_variances].std()))
    assert scatter[0] < 1e-3
    assert scatter[1] > 0.1


def test_equal_lower_bounds_stay_exactly_there(tiny):
    for model in ("FVBA", "FVBWA"):
        combine = aggregator(tiny, model, "EAA")
        vectors = vectors_of(combine.layout, [0, 0, 0], log_variances=[-8, -8, -8])
        assert unique(combine.combine(vectors, np.array([7, 11, 13]), 1), combine.layout.log_variances) == -8


def test_sums_are_not_made_in_float32(tiny):
    """1e8 + 1 - 1e8 has no 1 left in float32."""
    combine = aggregator(tiny, "FED")
    result = combine.combine(vectors_of(combine.layout, [1e8, 3, -1e8]), SIZES, 1)
    assert unique(result, slice(None)) == pytest.approx(1.0, rel=1e-6)


def test_ppa_draws_by_round(tiny):
    combine = aggregator(tiny, "FVBA", "PPA")
    vectors = vectors_of(combine.layout, [0, 0, 0], [1, 2, 3])
    again = aggregator(tiny, "FVBA", "PPA").combine(vectors, SIZES, 1)
    assert torch.equal(combine.combine(vectors, SIZES, 1), again)
    assert not torch.equal(combine.combine(vectors, SIZES, 2), again)


def test_a_rule_is_given_the_model_before_the_round_and_the_prior(tiny):
    settings = tiny.settings("FVBA", "EAA", posterior={"prior": {"mean": 0.5, "standard_deviation": 2.0}})
    layout, given = LeNetLayout((1, 16, 16), 3, True), []

    def rule(means, log_variances, weights, generator, previous, prior, when):
        given.extend((previous, prior))
        return means[0], log_variances[0]

    before = torch.from_numpy(vectors_of(layout, [1] * 3, [3] * 3, [-2] * 3)[0])
    Aggregator(settings, layout, rule).combine(vectors_of(layout, [0, 0, 0]), SIZES, 1, before)
    for gaussian, mean, log_variance in zip(given, (3, 0.5), (-2, np.log(4)), strict=True):
        assert gaussian.mean.tolist() == [mean] * len(gaussian.mean)
        assert gaussian.log_variance.tolist() == pytest.approx([log_variance] * len(gaussian.mean))


def with_rule(tiny, text, **overrides):
    """An aggregator whose rule is a file outside the package."""
    file = tiny.folder / "rule.py"
    file.write_text(
        f"import numpy as np\ndef aggregate(means, log_variances, weights, settings, generator):\n    {text}\n"
    )
    return Combining(tiny.settings("FVBA", "EAA", **overrides), file)


@pytest.mark.parametrize(("enforce", "expected"), [("project", (-8, 8)), ("clamp", (-20, 20))])
def test_projection_clips_what_a_rule_returns(tiny, enforce, expected):
    combine = with_rule(
        tiny,
        "return means[0], np.where(np.arange(len(means[0])) % 2, 20.0, -20.0)",
        posterior={"log_variance": {"enforce": enforce}},
    )
    result = combine.combine(vectors_of(combine.layout, [0, 0, 0], [50, 50, 50]), SIZES, 1)
    assert torch.unique(result[combine.layout.log_variances]).tolist() == list(expected)
    assert unique(result, combine.layout.means) == 50


def test_projection_clips_the_first_model_and_what_an_algorithm_makes(tiny):
    work = tiny.assignment(tiny.job("FVBA", "EAA", posterior={"log_variance": {"enforce": "project"}})).work()
    assert unique(work.initial, work.layout.log_variances) == -8
    work.algorithm = Chosen(SimpleNamespace(server=lambda model, *rest: (model + 50, {})))
    federation = Federation(work, 20)
    federation.is_evaluated = lambda round_: False
    model = federation.round(federation.initial(), 1, SerialExecutor(work)).server.model
    assert unique(model, work.layout.log_variances) == 8
    assert torch.equal(model[work.layout.means], work.initial[work.layout.means] + 50)


@pytest.mark.parametrize("bad", ["np.nan", "np.inf", "1e39"])  # 1e39 is too large for float32
@pytest.mark.parametrize("what", ["means[0] + {}, log_variances[0]", "means[0], log_variances[0] + {}"])
def test_a_rule_that_returns_what_is_not_finite(tiny, what, bad):
    combine = with_rule(tiny, "return " + what.format(bad))
    with pytest.raises(NotFiniteError, match="not finite"):
        combine.combine(vectors_of(combine.layout, [0, 0, 0]), SIZES, 1)


def test_clients_that_are_not_finite(tiny):
    combine = aggregator(tiny, "FED")
    vectors = vectors_of(combine.layout, [0, 0, 0])
    vectors[1, 17] = np.inf
    with pytest.raises(NotFiniteError, match="not finite"):
        combine.combine(vectors, SIZES, 1)


@pytest.mark.parametrize("returned", ["means, log_variances", "means[0], 0.0", "means[0][:5], log_variances[0]"])
def test_a_rule_that_returns_other_shapes(tiny, returned):
    combine = with_rule(tiny, f"return {returned}")
    with pytest.raises(UserError, match=r"(?s)EAA failed in round 1:.*must return two arrays of shape \((\d+),\)"):
        combine.combine(vectors_of(combine.layout, [0, 0, 0]), SIZES, 1)


def test_a_rule_that_raises(tiny):
    combine = with_rule(tiny, "return means[0] / weights.sum() @ 5, log_variances[0]")
    with pytest.raises(UserError, match=r"(?s)EAA failed in round 7:.*rule\.py.*matmul"):
        combine.combine(vectors_of(combine.layout, [0, 0, 0]), SIZES, 7)


def test_a_population_that_is_too_small(tiny):
    combine = aggregator(tiny, "FVBA", "PPA", aggregation="reference", aggregators={"PPA": {"population": 3}})
    combine.combine(vectors_of(combine.layout, [0, 0, 0]), SIZES, 1)  # one sample of each client
    combine = aggregator(tiny, "FVBA", "PPA", aggregation="reference", aggregators={"PPA": {"population": 2}})
    with pytest.raises(UserError, match=r"population of 2 leaves 0 samples for 3 clients"):
        combine.combine(vectors_of(combine.layout, [0, 0, 0]), SIZES, 1)
