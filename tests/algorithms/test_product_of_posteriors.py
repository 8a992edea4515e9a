"""FedAvg's clients, solved exactly, with the rule PRODUCT: the posterior of all data in one round."""

import numpy as np
import pytest
import torch
from algorithms.conjugate import EXACT_MEAN, EXACT_PRECISION, SIZES, Conjugate

from bflp.algorithms import fedavg, tempering
from bflp.engine.local import Local
from bflp.engine.server import Aggregator
from bflp.settings.rules import load_rule


def test_exact_after_one_round() -> None:
    toy = Conjugate(fedavg, tempering.Settings())
    rule = load_rule("PRODUCT")

    def call(means, log_variances, weights, generator, previous, prior, when):  # type: ignore[no-untyped-def]
        return rule(means, log_variances, weights, rule.settings(bounds=(-30.0, 30.0)), generator, previous, prior)

    vectors = torch.stack([toy.solved(client, Local()).vector for client in range(3)]).numpy()
    toy.model = Aggregator(toy.settings, toy.layout, call).combine(vectors, np.array(SIZES), 1, toy.model)
    assert toy.precision == pytest.approx(EXACT_PRECISION, rel=1e-6)
    assert toy.mean == pytest.approx(EXACT_MEAN, rel=1e-6)
