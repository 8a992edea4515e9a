"""SWAG, diagonal: mean and variance of the iterates of the second half of the local epochs, one per step.

The paper takes one iterate per epoch: with few epochs in a round there would be too few for a variance.

Training minimises n_k l_k - log prior, l_k the mean loss; weight decay comes in addition. All weights are Gaussian.
Maddox et al. (2019), "A simple baseline for Bayesian uncertainty in deep learning" (arXiv 1902.02476), section 3.2.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bflp.engine.client import client_update
from bflp.engine.cuda_graph import Replay
from bflp.engine.local import Gaussian, Local, Trained
from bflp.engine.settings import CellSettings
from bflp.networks import Network


def train(
    network: Network,
    means: Tensor,
    log_variances: Tensor,
    inputs: Tensor,
    labels: Tensor,
    settings: CellSettings,
    round_: int,
    client: int,
    replay: Replay | None,
    local: Local,
) -> Trained:
    """means, log_variances [P]: the server's; network: of plain numbers. The vector [2 P] holds both."""
    assert settings.posterior is not None
    prior = local.prior or Gaussian.prior(settings.posterior, means)
    whole = replace(local.with_prior(prior, len(labels)), moments_from=settings.training.local_epochs // 2)
    trained = client_update(network, means, inputs, labels, settings, round_, client, replay, whole)
    assert trained.moments is not None
    mean, variance = trained.moments
    # A weight that never moved has no variance: it gets the least that is in use.
    return replace(trained, vector=torch.cat([mean, variance.log().clamp(*settings.posterior.bounds)]))
