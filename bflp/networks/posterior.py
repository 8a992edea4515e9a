"""Gaussian weights: their prior, the bounds of their log variances, and their divergence from the prior."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

VARIANCE_FLOOR = 1e-8  # added to an output's variance, keeps the square root's gradient finite


@dataclass(frozen=True)
class Posterior:
    """The prior of the Gaussian weights, and how their log variances are kept within bounds.

    prior_mean, prior_standard_deviation: the prior N(mean, sd^2) of every weight. bounds: of the natural
    logarithm of a weight's variance. enforce: "clamp" uses the log variance clamped to the bounds, passing no
    gradient to a value at or beyond a bound; with "project" the caller moves parameters into the bounds after
    each step, they are used as they are, and gradients always pass.
    """

    prior_mean: float = 0.0
    prior_standard_deviation: float = 1.0
    bounds: tuple[float, float] = (-8.0, 8.0)
    enforce: Literal["clamp", "project"] = "clamp"

    def __post_init__(self) -> None:
        if self.enforce not in ("clamp", "project"):
            raise ValueError(f'enforce is "clamp" or "project", got {self.enforce!r}')
        if not self.prior_standard_deviation > 0.0:
            raise ValueError(f"the prior needs a positive deviation, not {self.prior_standard_deviation}")
        if not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"the bounds of the log variance must be (lower, upper), got {self.bounds}")


class WeightDistributions:
    """The variances of all V Gaussian weights, and their divergence from the prior N(m, p).

    means, log_variances: [V] each, slices of the parameter vector. shapes: of the weights, in the vector's order;
    stack: () or (K,), a leading dimension of all buffers.
    """

    def __init__(
        self, shapes: Iterable[Sequence[int]], posterior: Posterior, like: Tensor, stack: tuple[int, ...] = ()
    ) -> None:
        shapes = list(shapes)
        sizes = [math.prod(shape) for shape in shapes]
        self.posterior = posterior
        self.precision = posterior.prior_standard_deviation**-2  # 1 / p
        self.count = sum(sizes)
        self.variances = like.new_empty(*stack, self.count)
        self.used_log_variances = like.new_empty(*stack, self.count)
        self.shifts = like.new_empty(*stack, self.count)
        parts = self.variances.split(sizes, dim=-1)
        self.by_weight = [part.view(*stack, *shape) for part, shape in zip(parts, shapes, strict=True)]

    def load(self, log_variances: Tensor) -> None:
        """Computes the variances, whole and as one tensor per weight."""
        if self.posterior.enforce == "clamp":
            torch.clamp(log_variances, *self.posterior.bounds, out=self.used_log_variances)
        else:
            self.used_log_variances.copy_(log_variances)
        torch.exp(self.used_log_variances, out=self.variances)

    def divergence(self, means: Tensor) -> Tensor:
        """KL(q || prior) in nats: the sum of (v / p + (mu - m)^2 / p - 1 - log(v / p)) / 2."""
        shifts = self.shifts.copy_(means)
        if self.posterior.prior_mean != 0.0:
            shifts.sub_(self.posterior.prior_mean)
        scaled = (self.variances.sum() + shifts.dot(shifts)) * self.precision
        constant = self.count * (1.0 + math.log(self.precision))
        return (scaled - self.used_log_variances.sum() - constant) * 0.5

    def add_gradient(self, weight: float | Tensor, log_variances: Tensor, by_means: Tensor, by_both: Tensor) -> None:
        """Adds the gradient of weight * divergence(), which must have been called, in place.

        by_both: twice the gradient by the variances, turned into the one by the log variances; weight: of a stack,
        [K, 1].
        """
        if isinstance(weight, Tensor):
            by_means.addcmul_(self.shifts, weight * self.precision)
        else:
            by_means.add_(self.shifts, alpha=weight * self.precision)
        by_both.add_(weight * self.precision).mul_(self.variances).sub_(weight).mul_(0.5)
        if self.posterior.enforce == "clamp":
            # nothing passes at a bound or beyond: torch's hardtanh has the convention of its clamp
            lower, upper = self.posterior.bounds
            hardtanh_backward = torch.ops.aten.hardtanh_backward.grad_input
            hardtanh_backward(by_both, log_variances, lower, upper, grad_input=by_both)
