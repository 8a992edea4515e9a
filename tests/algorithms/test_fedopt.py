"""FedAdam, FedYogi and FedAdagrad on three quadratics."""

import pytest
from algorithms.toy import Toy, held, near

from bflp.algorithms import fedadagrad, fedadam, fedyogi


@pytest.mark.parametrize(
    ("algorithm", "settings", "models"),
    [
        (fedadagrad, fedadagrad.Settings(0.1), [0.0998508577, 0.1677586909, 0.2218169441]),
        (fedadam, fedadam.Settings(0.1), [0.0985187085, 0.2314070037, 0.3858324635]),
        (fedyogi, fedyogi.Settings(0.1), [0.0985186004, 0.2310531519, 0.3846244319]),
        (fedadam, fedadam.Settings(0.1, 0.9, 0.999, variant="tff"), [0.0954929091, 0.1919061597, 0.2883708506]),
    ],
)
def test_first_rounds(algorithm, settings, models):
    toy = Toy(held(algorithm), exact=True, settings=settings)
    assert toy.rounds(3) == [near(model) for model in models]


@pytest.mark.parametrize("algorithm", [fedadagrad, fedyogi])
def test_a_large_tau_leaves_fedavg(algorithm):
    """v stays at tau^2 then, and m / (sqrt(v) + tau) is D / (2 tau) without a mean of changes."""
    tau = 1e6
    settings = algorithm.Settings(learning_rate=2 * tau, beta1=0, tau=tau)
    assert Toy(algorithm, settings=settings).rounds(3) == pytest.approx(Toy().rounds(3), abs=1e-6)
