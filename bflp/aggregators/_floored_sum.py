"""The running sum of the paper's program, which inflates what it sums."""

from __future__ import annotations

import numpy as np

from bflp.aggregators import Array


def floored_running_sum(log_variances: Array, coefficients: Array, bounds: tuple[float, float]) -> Array:
    """log of sum_k c_k exp(clip(log_variances[k])), accumulated in log space with a clipped running total.

        total_1 = log(c_1 exp(clip(a_1)))        total_k = log(exp(clip(total_{k-1})) + c_k exp(clip(a_k)))

    Clipping the running total from below lifts it: with ten equal clients at the lower bound each round multiplies
    the variance by 1.9. log_variances [K, P], coefficients [K] -> [P].
    """
    total: Array = np.log(coefficients[0]) + np.clip(log_variances[0], *bounds)
    for coefficient, log_variance in zip(coefficients[1:], log_variances[1:], strict=True):
        total = np.log(np.exp(np.clip(total, *bounds)) + coefficient * np.exp(np.clip(log_variance, *bounds)))
    return total
