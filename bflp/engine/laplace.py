"""Laplace: a Gaussian around the weights that local training ends at, its precision the curvature there.

    precision = n_k F + L0,        F = mean over the client's samples of the squared gradients (empirical Fisher)

with the prior's precision L0. Training minimises n_k l_k - log prior, l_k the mean loss; weight decay comes in
addition. Where an algorithm sets a weight on the divergence, it multiplies log prior, and divides n_k F; with 0 the
prior takes no part in training, and F counts as it is. All weights are Gaussian. MacKay (1992), "A practical Bayesian
framework for backpropagation networks".
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
    whole = replace(local.with_prior(prior, len(labels)), squares=True)
    trained = client_update(network, means, inputs, labels, settings, round_, client, replay, whole)
    assert trained.squares is not None
    precision = len(labels) / (local.kl_weight or 1.0) * trained.squares + prior.precision
    return replace(trained, vector=torch.cat([trained.vector, -precision.log()]))
