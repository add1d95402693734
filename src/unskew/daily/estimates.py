"""Means over queries with intervals: sessions of a query are alike, so queries are what is counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A number with its t interval over queries, and the p-value of 0."""

    value: float
    low: float
    high: float
    p: float  # two-sided, or one-sided where only more than 0 means something
    n_queries: int


def totals(owner: NDArray, values: NDArray, n: int) -> Vector:
    """Sums of values over the rows of each owner, `[n]`."""
    return np.asarray(np.bincount(owner, weights=values, minlength=n), dtype=np.float64)


def ratio(sums: Vector, weights: Vector, *, level: float = 0.95, one_sided: bool = False) -> Estimate:
    """Sums over weights, `[queries]` each; a query without weight says nothing."""
    kept = weights > 0
    if not kept.any():
        raise ValueError("no query has what is to be averaged")
    value, influence = _ratio(sums[kept], weights[kept])
    return _estimate(value, influence, level, one_sided=one_sided)


def ratio_difference(
    sums_a: Vector, weights_a: Vector, sums_b: Vector, weights_b: Vector, *, level: float = 0.95
) -> Estimate:
    """The ratio of b minus that of a, `[queries]` each; a query with weight on both sides is a pair."""
    if not (weights_a > 0).any() or not (weights_b > 0).any():
        raise ValueError("one side has no query with what is to be averaged")
    kept = (weights_a > 0) | (weights_b > 0)
    first, of_first = _ratio(sums_a[kept], weights_a[kept])
    second, of_second = _ratio(sums_b[kept], weights_b[kept])
    return _estimate(second - first, of_second - of_first, level, one_sided=False)


def _ratio(sums: Vector, weights: Vector) -> tuple[float, Vector]:
    """A ratio, and how much each query moves it (the linear part of a bootstrap over queries)."""
    value = float(sums.sum() / weights.sum())
    return value, (sums - value * weights) / weights.sum()


def _estimate(value: float, influence: Vector, level: float, *, one_sided: bool) -> Estimate:
    n = len(influence)
    if n < 2:
        return Estimate(value, -np.inf, np.inf, 1.0, n)
    error = float(np.sqrt((influence**2).sum() * n / (n - 1)))
    if error <= 1e-12 * abs(value) or error == 0:
        certain = value > 0 if one_sided else value != 0
        return Estimate(value, value, value, 0.0 if certain else 1.0, n)
    half = float(stats.t.isf((1 - level) / 2, n - 1)) * error
    statistic = value / error
    p = float(stats.t.sf(statistic, n - 1) if one_sided else 2 * stats.t.sf(abs(statistic), n - 1))
    return Estimate(value, value - half, value + half, p, n)
