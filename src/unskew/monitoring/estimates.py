"""Means with intervals over queries: sessions of a query are correlated, so queries are the unit.

Logs larger than memory are read in parts of whole queries; only the moments of each part are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Vector = NDArray[np.float64]
THRESHOLD = 0.05  # of the corrected p
LEAST_SHARE = 0.001  # of the sessions of either log, for a value of a category to be compared
ONE_SIDED = ("order", "traffic")  # squares: only values above 0 mean something
Sums = tuple[float, float]  # numerator and denominator of a mean
ROUNDING = 1e-7  # of a value: a smaller error is rounding of float64 sums


@dataclass(frozen=True)
class Estimate:
    """A number with its t interval over queries, and the p-value of 0."""

    value: float
    low: float
    high: float
    p: float  # two-sided, or one-sided if only values above 0 mean something
    n_queries: int


def totals(owner: NDArray, values: NDArray, n: int) -> Vector:
    """Sums of values over the rows of each owner, `[n]`."""
    return np.asarray(np.bincount(owner, weights=values, minlength=n), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over queries of some numbers per query and of their products, from which intervals are computed."""

    first: Vector  # [k]
    second: Vector  # [k, k]
    n_queries: int

    @classmethod
    def of(cls, *values: Vector, kept: NDArray[np.bool_]) -> Moments:
        """The moments of numbers per query, `[queries]` each, over the queries that are kept."""
        table = np.stack(values)[:, kept]
        return cls(table.sum(axis=1), table @ table.T, int(kept.sum()))

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.first + other.first, self.second + other.second, self.n_queries + other.n_queries)

    def ratio(self, *, level: float = 0.95, one_sided: bool = False) -> Estimate:
        """The first number over the second."""
        value, influence = self._ratio(0)
        return self._estimate(value, influence, level, one_sided=one_sided)

    def ratio_difference(self, *, level: float = 0.95) -> Estimate:
        """The third number over the fourth, minus the first over the second, paired by query."""
        (first, of_first), (second, of_second) = self._ratio(0), self._ratio(2)
        return self._estimate(second - first, of_second - of_first, level, one_sided=False)

    def _ratio(self, place: int) -> tuple[float, Vector]:
        """A ratio, and its derivative by each number (the linear part of a bootstrap over queries)."""
        total, weight = self.first[place : place + 2]
        if not weight > 0:
            raise ValueError("no query has values to average")
        influence = np.zeros(len(self.first))
        influence[place : place + 2] = 1 / weight, -total / weight**2
        return float(total / weight), influence

    def _estimate(self, value: float, influence: Vector, level: float, *, one_sided: bool) -> Estimate:
        n = self.n_queries
        if n < 2:
            return Estimate(value, -np.inf, np.inf, 1.0, n)
        variance = float(influence @ self.second @ influence) * n / (n - 1)
        error = float(np.sqrt(max(variance, 0.0)))
        if error <= ROUNDING * abs(value) or error == 0:
            certain = value > 0 if one_sided else value != 0
            return Estimate(value, value, value, 0.0 if certain else 1.0, n)
        half = float(stats.t.isf((1 - level) / 2, n - 1)) * error
        statistic = value / error
        p = float(stats.t.sf(statistic, n - 1) if one_sided else 2 * stats.t.sf(abs(statistic), n - 1))
        return Estimate(value, value - half, value + half, p, n)


def of_ratio(sums: Vector, weights: Vector) -> Moments:
    """The moments of sums over weights, `[queries]` each; queries without weight do not count."""
    return Moments.of(sums, weights, kept=weights > 0)


def of_difference(sums_a: Vector, weights_a: Vector, sums_b: Vector, weights_b: Vector) -> Moments:
    """The moments of the ratio of b minus that of a, `[queries]` each, paired by query."""
    return Moments.of(sums_a, weights_a, sums_b, weights_b, kept=(weights_a > 0) | (weights_b > 0))


@dataclass(frozen=True)
class Change:
    """One comparison; `difference` is the second log minus the first."""

    kind: str  # feature, missing, category, context, clicks, order, traffic or bias
    name: str
    before: float | None
    after: float | None
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    n_queries: int

    @property
    def changed(self) -> bool:
        return self.p_holm < THRESHOLD


@dataclass(frozen=True, eq=False)
class Compared:
    """One comparison on a part of the logs: moments over queries, and the sums of the means before and after."""

    kind: str
    name: str
    moments: Moments
    before: Sums | None = None
    after: Sums | None = None

    def __add__(self, other: Compared) -> Compared:
        def added(a: Sums | None, b: Sums | None) -> Sums | None:
            return (a[0] + b[0], a[1] + b[1]) if a is not None and b is not None else None

        return replace(
            self,
            moments=self.moments + other.moments,
            before=added(self.before, other.before),
            after=added(self.after, other.after),
        )

    def means(self) -> tuple[float | None, float | None]:
        """Before and after."""
        if len(self.moments.first) == 4:
            a, of_a, b, of_b = self.moments.first
            return float(a / of_a), float(b / of_b)
        before, after = (None if each is None else each[0] / each[1] for each in (self.before, self.after))
        return before, after

    @property
    def tells(self) -> bool:
        """Whether both logs have enough to compare."""
        if not (self.moments.first[1::2] > 0).all():
            return False
        of_share = self.kind == "missing" or (self.kind == "context" and "=" in self.name)
        least = {"missing": 0.0}.get(self.kind, LEAST_SHARE)
        return not of_share or max(value or 0.0 for value in self.means()) > least

    def change(self, p_holm: float) -> Change:
        before, after = self.means()
        each = self.estimate()
        found = (each.value, each.low, each.high, each.p, p_holm, each.n_queries)
        return Change(self.kind, self.name, before, after, *found)

    def estimate(self) -> Estimate:
        """The difference with its interval."""
        if len(self.moments.first) == 4:
            return self.moments.ratio_difference()
        return self.moments.ratio(one_sided=self.kind in ONE_SIDED)
