"""EAA, GAA, AALV and CF by their equations: worked examples, numerical integration, limits."""

import math

import numpy as np
import pytest

from bflp.aggregators import AggregationSettings
from bflp.settings.rules import load_rule

EXACT = AggregationSettings()
CLOSED_FORM = ("EAA", "GAA", "AALV", "CF", "W2", "RKL", "FKL")
ALL = (*CLOSED_FORM, "PPA")


def settings_of(rule, **values):
    return load_rule(rule).settings(**values)


def combine(rule, means, variances, weights, settings=EXACT):
    """[K, P] means and variances as nested lists -> mean [P], variance [P]."""
    mean, log_variance = load_rule(rule)(
        np.array(means, dtype=float),
        np.log(np.array(variances, dtype=float)),
        np.array(weights, dtype=float),
        settings,
        np.random.default_rng(0),
    )
    return mean, np.exp(log_variance)


# Two clients weighing 1/4 and 3/4; the first weight has means 1 and 5 and variances 1 and 4, the second weight means
# -2 and 2 and variances 1/2 and 1/2.
MEANS, VARIANCES, WEIGHTS = [[1, -2], [5, 2]], [[1, 0.5], [4, 0.5]], [0.25, 0.75]


@pytest.mark.parametrize(
    ("rule", "mean", "variance"),
    [
        # 1/4 * 1 + 3/4 * 5 = 4, 1/4 * -2 + 3/4 * 2 = 1;  1/4 * 1 + 3/4 * 4 = 3.25, 1/2
        ("EAA", [4, 1], [3.25, 0.5]),
        # 1/16 * 1 + 9/16 * 4 = 37/16;  (1/16 + 9/16) / 2 = 5/16
        ("GAA", [4, 1], [37 / 16, 5 / 16]),
        # 1^(1/4) * 4^(3/4) = 2^(3/2);  1/2
        ("AALV", [4, 1], [2 * math.sqrt(2), 0.5]),
        # beta * precision: 1/4 and 3/16, sum 7/16: mean (1/4 + 15/16) / (7/16) = 19/7, variance (3/4) / (7/16) = 12/7;
        # 1/2 and 3/2, sum 2: mean (-1 + 3) / 2 = 1, variance (3/4) / 2
        ("CF", [19 / 7, 1], [12 / 7, 3 / 8]),
        # deviations 1 and 2: (1/4 + 3/2)^2 = 49/16;  1/2
        ("W2", [4, 1], [49 / 16, 0.5]),
        # the mean of CF, its variance times 4/3
        ("RKL", [19 / 7, 1], [16 / 7, 1 / 2]),
        # 3.25 + 1/4 * 9 + 3/4 * 1 = 6.25;  1/2 + 1/4 * 9 + 3/4 * 1 = 3.5
        ("FKL", [4, 1], [6.25, 3.5]),
    ],
)
def test_worked_example(rule, mean, variance):
    found_mean, found_variance = combine(rule, MEANS, VARIANCES, WEIGHTS)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-14)
    np.testing.assert_allclose(found_variance, variance, rtol=1e-14)


@pytest.mark.parametrize(
    ("rule", "log_variance"),
    [
        # Weights 1/2 each; in use -9 counts as -8 and 9 as 8, but AALV takes the stored values.
        ("EAA", math.log((math.exp(-8) + math.exp(8)) / 2)),
        ("GAA", math.log((math.exp(-8) + math.exp(8)) / 4)),
        ("AALV", -0.5),
        ("CF", math.log(2 * 0.5 / (math.exp(8) + math.exp(-8)))),
        ("W2", 2 * math.log((math.exp(-4) + math.exp(4)) / 2)),
        ("RKL", math.log(2 / (math.exp(8) + math.exp(-8)))),
        ("FKL", math.log((math.exp(-8) + math.exp(8)) / 2)),
    ],
)
def test_log_variances_are_clipped_to_the_bounds_except_by_aalv(rule, log_variance):
    stored = np.array([[-9.0], [8.0 if rule == "AALV" else 9.0]])
    _, found = load_rule(rule)(np.zeros((2, 1)), stored, np.full(2, 0.5), EXACT, np.random.default_rng(0))
    assert found[0] == pytest.approx(log_variance, rel=1e-13)


def test_bounds_are_the_given_ones():
    settings = AggregationSettings(bounds=(-1.0, 1.0))
    stored = np.array([[-3.0], [3.0]])
    _, found = load_rule("EAA")(np.zeros((2, 1)), stored, np.full(2, 0.5), settings, np.random.default_rng(0))
    assert found[0] == pytest.approx(math.log(math.cosh(1)))


@pytest.mark.parametrize(
    ("means", "variances", "weights"),
    [
        ([0.0, 1.5], [0.5, 2.0], [0.5, 0.5]),
        ([-1.0, 2.0], [0.3, 1.0], [0.2, 0.8]),
        ([-1.0, 0.5, 2.0], [0.4, 1.0, 0.1], [0.1, 0.6, 0.3]),
        ([3.0, -3.0, 0.0], [2.0, 0.7, 1.1], [0.25, 0.45, 0.3]),
    ],
)
def test_cf_is_the_normalised_product_of_densities(means, variances, weights):
    """Mean and variance of prod_k f_k^(beta_k / max beta), integrated on a grid; no formula of a product is used."""
    x = np.linspace(-25, 25, 400_001)
    log_product = np.zeros_like(x)
    for mean, variance, weight in zip(means, variances, weights, strict=True):
        density = np.exp(-((x - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
        with np.errstate(divide="ignore"):
            log_product += weight / max(weights) * np.log(density)
    product = np.exp(log_product - log_product.max())
    mass = np.trapezoid(product, x)
    mean = np.trapezoid(x * product, x) / mass
    variance = np.trapezoid((x - mean) ** 2 * product, x) / mass
    found_mean, found_variance = combine("CF", [[m] for m in means], [[v] for v in variances], weights)
    assert found_mean[0] == pytest.approx(mean, abs=1e-9)
    assert found_variance[0] == pytest.approx(variance, rel=1e-8)


@pytest.mark.parametrize("rule", CLOSED_FORM)
def test_one_client_is_returned_as_it_is(rule):
    means, log_variances = np.array([[0.3, -7.0]]), np.array([[-5.0, 2.0]])
    mean, log_variance = load_rule(rule)(means, log_variances, np.ones(1), EXACT, np.random.default_rng(0))
    np.testing.assert_allclose(mean, means[0], rtol=1e-14)
    np.testing.assert_allclose(log_variance, log_variances[0], rtol=1e-14)


def many_clients(clients=1000, weights=400):
    """Log variances over all of [-8, 8], the bounds among them, and very unequal client weights."""
    generator = np.random.default_rng(7)
    log_variances = generator.uniform(-8, 8, (clients, weights))
    log_variances[:, 0], log_variances[:, 1] = -8, 8
    log_variances[:, 2] = np.where(np.arange(clients) % 2, -8, 8)
    amounts = generator.pareto(1.0, clients) + 1
    return generator.normal(0, 1, (clients, weights)), log_variances, amounts / amounts.sum()


def accurate_sum(terms):
    """[K, P] -> [P], each sum correctly rounded."""
    return np.array([math.fsum(column) for column in terms.T])


def test_thousand_clients_against_accurate_sums():
    means, log_variances, weights = many_clients()
    variances, beta = np.exp(log_variances), weights[:, None]
    mean, precision = accurate_sum(beta * means), accurate_sum(beta / variances)
    expected = {
        "EAA": (mean, np.log(accurate_sum(beta * variances))),
        "GAA": (mean, np.log(accurate_sum(beta**2 * variances))),
        "AALV": (mean, accurate_sum(beta * log_variances)),
        "CF": (accurate_sum(beta / variances * means) / precision, np.log(weights.max() / precision)),
        "W2": (mean, 2 * np.log(accurate_sum(beta * np.sqrt(variances)))),
        "RKL": (accurate_sum(beta / variances * means) / precision, np.log(1 / precision)),
        "FKL": (mean, np.log(accurate_sum(beta * variances) + accurate_sum(beta * (means - mean) ** 2))),
    }
    for rule in CLOSED_FORM:
        found = load_rule(rule)(means, log_variances, weights, EXACT, np.random.default_rng(0))
        for name, one, other in zip(("mean", "log variance"), found, expected[rule], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12, err_msg=f"{rule} {name}")


@pytest.mark.parametrize("arithmetic", ["exact", "reference"])
@pytest.mark.parametrize("rule", ALL)
def test_thousand_clients_stay_in_range(rule, arithmetic):
    means, log_variances, weights = many_clients()
    settings = settings_of(rule, arithmetic=arithmetic)
    mean, log_variance = load_rule(rule)(means, log_variances, weights, settings, np.random.default_rng(0))
    assert np.isfinite(mean).all() and np.isfinite(log_variance).all()
    # A pooled mean strays from the clients' means by its own standard error, at most e^4 / sqrt(1000) here.
    slack = 6 * math.exp(4) / math.sqrt(1000) if rule == "PPA" else 0
    assert (mean >= means.min(axis=0) - slack).all() and (mean <= means.max(axis=0) + slack).all()
    # GAA and CF divide the variance by the number of clients at most; reference sums of 1000 terms gain log(1000).
    lowest = -8 - math.log(1000) if rule in ("GAA", "CF") else -8
    # PPA and FKL add the spread of the means.
    highest = 8 + (math.log(1000) if arithmetic == "reference" or rule in ("PPA", "FKL") else 1e-9)
    assert log_variance.min() >= lowest - 1e-9 and log_variance.max() <= highest


@pytest.mark.parametrize("clients", [1, 2, 3, 7, 10, 100, 1000])
def test_eaa_of_equal_lower_bounds_is_that_bound(clients):
    """A rounding below -8 would be a dead zone: the clamp passes no gradient there."""
    amounts = np.random.default_rng(clients).uniform(0.1, 10, clients)
    for weights in (np.full(clients, 1 / clients), amounts / amounts.sum()):
        _, log_variance = load_rule("EAA")(
            np.zeros((clients, 3)), np.full((clients, 3), -8.0), weights, EXACT, np.random.default_rng(0)
        )
        assert (log_variance.astype(np.float32) == -8.0).all()


@pytest.mark.parametrize("rule", CLOSED_FORM)
def test_the_order_of_the_clients_does_not_matter(rule):
    means, log_variances, weights = many_clients(50, 30)
    order = np.random.default_rng(3).permutation(50)
    settings, generator = EXACT, np.random.default_rng(0)
    one = load_rule(rule)(means, log_variances, weights, settings, generator)
    other = load_rule(rule)(means[order], log_variances[order], weights[order], settings, generator)
    np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("arithmetic", ["exact", "reference"])
@pytest.mark.parametrize("rule", ALL)
def test_the_clients_posteriors_are_not_modified(rule, arithmetic):
    arrays = many_clients(20, 10)
    copies = [array.copy() for array in arrays]
    settings = settings_of(rule, arithmetic=arithmetic)
    mean, log_variance = load_rule(rule)(*arrays, settings, np.random.default_rng(0))
    mean += 1
    log_variance += 1
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("rule", CLOSED_FORM)
def test_nothing_is_drawn_by_rules_without_randomness(rule):
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    load_rule(rule)(*many_clients(5, 4), EXACT, generator)
    assert generator.bit_generator.state == before
