"""Drift: what changed between two logs, with intervals over queries.

The same is compared with the same, so that one change does not look like another: features of the same documents,
clicks on the same documents at the same positions, the order of the same documents. More traffic on some queries
then changes none of these. All p-values are corrected together (Holm).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.daily.estimates import Estimate, ratio, ratio_difference, totals
from unskew.daily.matched import Matched, Side, match
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import BiasColumn
from unskew.evaluation.differences import holm

THRESHOLD = 0.05  # of the corrected p

Row = tuple[str, str, float | None, float | None, Estimate]


@dataclass(frozen=True)
class Change:
    """One thing that was compared; `difference` is the second log minus the first."""

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


@dataclass(frozen=True)
class Drift:
    """What was compared, what could not be, and how much the logs have in common."""

    rows: list[Change]
    coverage: dict[str, float]
    only_before: list[str]  # columns
    only_after: list[str]

    @property
    def changed(self) -> list[Change]:
        return [row for row in self.rows if row.changed]

    def to_json(self) -> dict[str, Any]:
        rows = [{**asdict(row), "changed": row.changed} for row in self.rows]
        return {"coverage": self.coverage, "only_a": self.only_before, "only_b": self.only_after, "changes": rows}


def drift(a: ClickLog, b: ClickLog) -> Drift:
    """What changed from one log to another: features, clicks, coverage, traffic, bias columns, the logger's order.

    Use `diagnose` to look at one log. Logs that share no query or no document are refused.
    """
    matched = match(a, b)
    found = [
        *_features(matched),
        *_context(matched),
        *_clicks(matched),
        *_order(matched),
        *_traffic(matched),
        *_bias(matched),
    ]
    corrected = holm([row[4].p for row in found])
    rows = [
        Change(kind, name, before, after, each.value, each.low, each.high, each.p, float(p), each.n_queries)
        for (kind, name, before, after, each), p in zip(found, corrected, strict=True)
    ]
    columns = [{*_names(log), *log.context_names, *log.bias} for log in (a, b)]
    return Drift(rows, _coverage(matched), sorted(columns[0] - columns[1]), sorted(columns[1] - columns[0]))


def _names(log: ClickLog) -> tuple[str, ...]:
    return log.feature_names or tuple(f"feature_{number}" for number in range(log.n_features))


def _features(matched: Matched) -> Iterator[Row]:
    """Of documents that both logs show: the mean of each column, the share that is missing, categories that changed."""
    a, b = matched.a, matched.b
    names = [name for name in _names(a.log) if name in _names(b.log)]
    n_documents = len(matched.query_of_document)
    weights_a, weights_b = _version_weights(a), _version_weights(b)
    for name in names:
        texts = [side.log.categories.get(name) for side in (a, b)]
        values = [side.log.features[:, _names(side.log).index(name)].astype(np.float64) for side in (a, b)]
        if (texts[0] is None) != (texts[1] is None):
            raise ValueError(f"feature '{name}' is text in one log and numbers in the other: ingest both alike")
        known = [~np.isnan(column) for column in values]
        missing = [
            _document_mean((~present).astype(np.float64), weight, side, n_documents)
            for present, weight, side in zip(known, (weights_a, weights_b), (a, b), strict=True)
        ]
        if not all(present.all() for present in known):
            yield "missing", name, *_paired(missing[0], missing[1], matched)
        if texts[0] is not None and texts[1] is not None:
            values[1] = _recoded(values[1], texts[1], texts[0])
        means = [
            _document_mean(np.where(present, column, 0.0), weight * present, side, n_documents)
            for column, present, weight, side in zip(values, known, (weights_a, weights_b), (a, b), strict=True)
        ]
        if texts[0] is None:
            if (np.isfinite(means[0]) & np.isfinite(means[1])).any():
                yield "feature", name, *_paired(means[0], means[1], matched)
        else:
            moved = np.where(np.isfinite(means[0] + means[1]), (means[0] != means[1]).astype(np.float64), np.nan)
            yield "category", name, *_paired(np.zeros_like(moved), moved, matched)


def _version_weights(side: Side) -> NDArray[np.float64]:
    log = side.log
    rows = np.nonzero(log.mask)[0]
    return totals(log.versions[log.mask], log.sessions[rows], len(log.features))


def _document_mean(
    values: NDArray[np.float64], weights: NDArray[np.float64], side: Side, n_documents: int
) -> NDArray[np.float64]:
    """Mean of each document over its showings, by common number; NaN where it was not shown."""
    owner = side.documents[side.log.version_documents]
    sums = totals(owner, values * weights, n_documents)
    shown = totals(owner, weights, n_documents)
    return np.divide(sums, shown, out=np.full(n_documents, np.nan), where=shown > 0)


def _paired(before: NDArray[np.float64], after: NDArray[np.float64], matched: Matched) -> tuple[float, float, Estimate]:
    """Means over the documents that have both, and their difference."""
    both = np.isfinite(before) & np.isfinite(after)
    owner = matched.query_of_document[both]
    sums = totals(owner, after[both] - before[both], matched.n_queries)
    counts = np.bincount(owner, minlength=matched.n_queries).astype(np.float64)
    return float(before[both].mean()), float(after[both].mean()), ratio(sums, counts)


def _recoded(codes: NDArray, have: tuple[str, ...], want: tuple[str, ...]) -> NDArray:
    """Codes by the other vocabulary; what it lacks comes after it."""
    new = [text for text in have if text not in want]
    places = {text: number for number, text in enumerate((*want, *new))}
    table = np.array([places[text] for text in have] or [0], dtype=np.float64)
    missing = np.isnan(codes)
    return np.where(missing, np.nan, table[np.where(missing, 0, codes).astype(np.int64)])


def _context(matched: Matched) -> Iterator[Row]:
    a, b = matched.a, matched.b
    for name in [name for name in a.log.context_names if name in b.log.context_names]:
        if name in a.log.categories or name in b.log.categories:
            continue
        parts = []
        for side in (a, b):
            values = side.log.context[:, side.log.context_names.index(name)].astype(np.float64)
            parts += _sums(side, np.nan_to_num(values), ~np.isnan(values), matched.n_queries)
        yield "context", name, *_difference(parts)


def _sums(
    side: Side, values: NDArray[np.float64], known: NDArray[np.bool_], n_queries: int
) -> list[NDArray[np.float64]]:
    """Sum of values and of sessions of each query, over the lists that are known."""
    weights = side.log.sessions * known
    return [
        totals(side.queries, values * weights, n_queries),
        totals(side.queries, weights, n_queries),
    ]


def _difference(parts: list[NDArray[np.float64]]) -> tuple[float, float, Estimate]:
    before, after = (float(parts[i].sum() / parts[i + 1].sum()) for i in (0, 2))
    return before, after, ratio_difference(*parts)


def _clicks(matched: Matched) -> Iterator[Row]:
    """Clicks per showing of the same documents at the same position, position by position."""
    n_positions = max(side.log.n_positions for side in (matched.a, matched.b))
    counts = []
    for side in (matched.a, matched.b):
        _, document, rows, columns = side.per_place(matched.shared_documents)
        cell = document * n_positions + side.log.positions[rows, columns]
        known, number = np.unique(cell, return_inverse=True)
        clicks = totals(number, side.log.clicks[rows, columns], len(known))
        counts.append((known, clicks, totals(number, side.log.sessions[rows], len(known))))
    cells, of_a, of_b = np.intersect1d(counts[0][0], counts[1][0], assume_unique=True, return_indices=True)
    (_, clicks_a, shown_a), (_, clicks_b, shown_b) = counts
    rate_a, rate_b = (clicks_a / shown_a)[of_a], (clicks_b / shown_b)[of_b]
    weight = shown_a[of_a] * shown_b[of_b] / (shown_a[of_a] + shown_b[of_b])
    query, position = matched.query_of_document[cells // n_positions], cells % n_positions
    for place in np.unique(position):
        here = position == place
        parts = [
            totals(query[here], values[here] * weight[here], matched.n_queries)
            for values in (rate_b - rate_a, np.ones(len(cells)))
        ]
        means = [float((rate[here] * weight[here]).sum() / weight[here].sum()) for rate in (rate_a, rate_b)]
        yield "clicks", f"position {place + 1}", means[0], means[1], ratio(parts[0], parts[1])


def _order(matched: Matched) -> Iterator[Row]:
    """Places among the documents that both logs show: the mean squared shift, less what chance alone would give."""
    n_documents = len(matched.query_of_document)
    means, errors = [], []
    for side in (matched.a, matched.b):
        log = side.log
        keep = log.mask & matched.shared_documents[side.documents[log.documents]]
        places = (np.cumsum(keep, axis=1) - 1)[keep].astype(np.float64)
        document, weight = side.documents[log.documents[keep]], log.sessions[np.nonzero(keep)[0]]
        n, first, second = (totals(document, weight * places**power, n_documents) for power in (0, 1, 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = first / n
            means.append(mean)
            errors.append(np.where(n > 1, np.maximum(second / n - mean**2, 0.0) / (n - 1), np.nan))
    shift = (means[0] - means[1]) ** 2 - errors[0] - errors[1]
    known = np.isfinite(shift)
    if not known.any():
        return
    owner = matched.query_of_document[known]
    sums = totals(owner, shift[known], matched.n_queries)
    counts = np.bincount(owner, minlength=matched.n_queries).astype(np.float64)
    found = ratio(sums, counts, one_sided=True)
    yield "order", "squared shift of places of the same documents", None, None, found


def _traffic(matched: Matched) -> Iterator[Row]:
    """Shares of the shared queries: their squared change, less what chance alone would give."""
    shared = matched.shared_queries
    counts = [side.sessions[shared] for side in (matched.a, matched.b)]
    shares = [count / count.sum() for count in counts]
    chance = sum(share * (1 - share) / (count.sum() - 1) for share, count in zip(shares, counts, strict=True))
    moved = ((shares[0] - shares[1]) ** 2 - chance) * len(counts[0]) ** 2
    found = ratio(moved, np.ones(len(moved)), one_sided=True)
    yield "traffic", "squared relative change of the shares of queries", None, None, found


def _bias(matched: Matched) -> Iterator[Row]:
    """The share of each level of a bias column of lists, or the mean of a numeric one."""
    a, b = matched.a.log.bias, matched.b.log.bias
    for name in [name for name in a if name in b]:
        columns: tuple[BiasColumn, BiasColumn] = (a[name], b[name])
        if any(column.values.ndim > 1 for column in columns):
            continue
        if columns[0].levels is None or columns[1].levels is None:
            values = [column.values.astype(np.float64) for column in columns]
            yield "bias", name, *_of_lists(matched, values)
            continue
        for level in dict.fromkeys((*columns[0].levels, *columns[1].levels)):
            chosen = [
                (np.array([entry == level for entry in column.levels or ()])[column.values]).astype(np.float64)
                for column in columns
            ]
            yield "bias", f"{name}={level}", *_of_lists(matched, chosen)


def _of_lists(matched: Matched, values: list[NDArray[np.float64]]) -> tuple[float, float, Estimate]:
    parts = []
    for side, column in zip((matched.a, matched.b), values, strict=True):
        parts += _sums(side, column, np.ones(len(column), dtype=bool), matched.n_queries)
    return _difference(parts)


def _coverage(matched: Matched) -> dict[str, float]:
    """How much of each log the other one knows."""
    a, b = matched.a, matched.b
    queries, documents = matched.shared_queries, matched.shared_documents
    return {
        "queries_a": int((a.sessions > 0).sum()),
        "queries_b": int((b.sessions > 0).sum()),
        "queries_shared": int(queries.sum()),
        "documents_a": int((a.shown > 0).sum()),
        "documents_b": int((b.shown > 0).sum()),
        "documents_shared": int(documents.sum()),
        "sessions_a": float(a.sessions.sum()),
        "sessions_b": float(b.sessions.sum()),
        "sessions_b_of_known_queries": float(b.sessions[queries].sum() / b.sessions.sum()),
        "showings_b_of_known_documents": float(b.shown[documents].sum() / b.shown.sum()),
    }
