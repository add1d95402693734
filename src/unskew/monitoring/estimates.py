"""Means with intervals over queries: sessions of a query are correlated, so queries are the unit.

Logs larger than memory are read in parts of whole queries; only the moments of each part are kept. To compare two logs,
their queries and documents get common numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shards import join_logs
from unskew.data.clicks.storage import Log
from unskew.data.grouping import number_ids

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


Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Side:
    """One of two logs, with the common numbers of its queries and documents."""

    log: ClickLog
    queries: Index  # [lists], common number of the query
    documents: Index  # [documents], common number of (query, document)
    sessions: NDArray[np.float64]  # [queries], by common number
    shown: NDArray[np.float64]  # [documents], sessions in which it was shown, by common number

    def per_place(self, keep: NDArray[np.bool_]) -> tuple[Index, Index, Index, Index]:
        """Common query and document numbers, list and column of the places that show a kept document."""
        kept = self.log.mask & keep[self.documents[self.log.documents]]
        rows, columns = np.nonzero(kept)
        return self.queries[rows], self.documents[self.log.documents[rows, columns]], rows, columns


@dataclass(frozen=True, eq=False)
class Matched:
    """Two logs, and the number of queries and documents in their union."""

    a: Side
    b: Side
    n_queries: int
    query_of_document: Index  # [documents]

    @property
    def shared_queries(self) -> NDArray[np.bool_]:
        return (self.a.sessions > 0) & (self.b.sessions > 0)

    @property
    def shared_documents(self) -> NDArray[np.bool_]:
        return (self.a.shown > 0) & (self.b.shown > 0)


def match(a: ClickLog, b: ClickLog) -> Matched:
    """Number queries and documents of both logs together, by their ids."""
    queries = _numbers(a.query_ids, b.query_ids)
    ids = _numbers(a.document_ids, b.document_ids)
    n_ids = int(max(part.max(initial=-1) for part in ids)) + 1
    pairs = [
        of_query[log.document_queries] * n_ids + of_id
        for log, of_query, of_id in zip((a, b), queries, ids, strict=True)
    ]
    known, number = np.unique(np.concatenate(pairs), return_inverse=True)
    documents = np.split(number.reshape(-1).astype(np.int64), [len(pairs[0])])
    n_queries = int(max(part.max(initial=-1) for part in queries)) + 1
    sides = [
        _side(log, of_query, of_document, n_queries, len(known))
        for log, of_query, of_document in zip((a, b), queries, documents, strict=True)
    ]
    return Matched(sides[0], sides[1], n_queries, known // n_ids)


def _side(log: ClickLog, of_query: Index, documents: Index, n_queries: int, n_documents: int) -> Side:
    queries = of_query[log.queries]
    sessions = totals(queries, log.sessions, n_queries)
    rows = np.nonzero(log.mask)[0]
    shown = totals(documents[log.documents[log.mask]], log.sessions[rows], n_documents)
    return Side(log, queries, documents, sessions, shown)


def _numbers(a: NDArray, b: NDArray) -> tuple[Index, Index]:
    if (a.dtype.kind in "iu") != (b.dtype.kind in "iu"):
        a, b = a.astype(str).astype(object), b.astype(str).astype(object)
    _, numbers = number_ids(np.concatenate([a, b]))
    return numbers[: len(a)], numbers[len(a) :]


def parts(a: Log, b: Log) -> Iterator[tuple[ClickLog, ClickLog]]:
    """Both logs whole or, for opened folders, in parts with the same queries: as many as the larger one has shards.

    A checksum of its id assigns a query to a part. Every shard is read once per part; memory holds two shards and one
    part of each log.
    """
    if isinstance(a, ClickLog) and isinstance(b, ClickLog):
        yield a, b
        return
    n_parts = max(a.n_shards, b.n_shards)
    for number in range(n_parts):
        yield _part(a, number, n_parts), _part(b, number, n_parts)


def _part(log: Log, number: int, n_parts: int) -> ClickLog:
    chosen = []
    for shard in log.shards():
        mine = [crc32(str(query).encode()) % n_parts == number for query in shard.query_ids.tolist()]
        chosen.append(shard.of_queries(np.array(mine, dtype=bool)))
    return join_logs(chosen)
