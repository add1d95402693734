"""Drift: what changed between two logs, with intervals over queries.

Each comparison holds everything else fixed, so that one change does not look like another: features of the same
documents, clicks on the same documents at the same positions, the order of the same documents. More traffic on some
queries then changes none of these. All p-values are corrected together (Holm). Logs may be read in parts of whole
queries; only the moments of each comparison are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.inputs import LogOrPlace, as_log_or_folder
from unskew.display import Displayed, Screen, rows_table
from unskew.evaluation.differences import holm
from unskew.monitoring.estimates import Change, Compared, Matched, Side, match, of_difference, of_ratio, parts, totals


@dataclass(frozen=True, repr=False)
class Drift(Displayed):
    """The comparison of two logs: rows, columns that only one has, and coverage."""

    rows: list[Change]
    coverage: dict[str, float]
    only_before: list[str]  # columns
    only_after: list[str]

    @property
    def changed(self) -> list[Change]:
        return [row for row in self.rows if row.changed]

    def to_table(self) -> pa.Table:
        """One row per comparison, changed or not."""
        return rows_table(self.rows, Change)

    def screen(self) -> Screen:
        changed = sorted(self.changed, key=lambda row: row.p_holm)
        rows = [
            (
                f"{row.kind} {row.name}",
                *("" if value is None else f"{value:.4g}" for value in (row.before, row.after)),
                f"{row.difference:+.4g}",
                f"{row.low:.4g} to {row.high:.4g}",
                f"{row.p_holm:.2g}",
            )
            for row in changed
        ]
        columns = ("changed", "before", "after", "difference", "95% interval", "p, corrected")
        notes = [f"{len(self.rows) - len(rows)} of {len(self.rows)} comparisons found no change."]
        sides = (("before", self.only_before), ("after", self.only_after))
        notes += [f"Only {side}: {', '.join(names)}" for side, names in sides if names]
        common = [
            (name.replace("_", " "), f"{value:.1%}" if "_of_" in name else f"{value:,.0f}")
            for name, value in self.coverage.items()
        ]
        more = [Screen("What the logs have in common", ("coverage", ""), common)]
        title = "What changed from one log to the other" if rows else "No change from one log to the other"
        return Screen(title, columns if rows else (), rows, notes, more=more)

    def to_json(self) -> dict[str, Any]:
        rows = [{**asdict(row), "changed": row.changed} for row in self.rows]
        return {"coverage": self.coverage, "only_a": self.only_before, "only_b": self.only_after, "changes": rows}


def drift(a: LogOrPlace, b: LogOrPlace) -> Drift:
    """What changed from one log to another: features, clicks, order, traffic, bias columns, coverage.

    Use `diagnose` for a single log. Logs that share no query or no document are refused. Logs from `open_log` are
    read in parts and may be larger than memory.

    >>> import unskew
    >>> days = [unskew.simulate("world:tiny", sessions=8, seed=seed, progress=False) for seed in (1, 2)]
    >>> [row.name for row in unskew.drift(*days).changed]
    []
    """
    found: dict[tuple[str, str], Compared] = {}
    coverage: dict[str, float] = {}
    counts: list[NDArray[np.float64]] = []  # [2, shared queries] sessions, of each part
    columns: list[set[str]] = [set(), set()]
    examples: list[list[object]] = [[], []]
    for both in parts(as_log_or_folder(a), as_log_or_folder(b)):
        matched = match(*both)
        for row in _compared(matched):
            known = found.get((row.kind, row.name))
            found[row.kind, row.name] = row if known is None else known + row
        for name, value in _coverage(matched).items():
            coverage[name] = coverage.get(name, 0.0) + value
        counts.append(np.stack([side.sessions[matched.shared_queries] for side in (matched.a, matched.b)]))
        for place, log in enumerate(both):
            columns[place] |= {*log.named_features, *log.context_names, *log.bias}
            examples[place] += log.query_ids[:2].tolist()
    _refuse_nothing_shared(coverage, examples)
    rows = [*(row for row in found.values() if row.tells), _traffic(np.concatenate(counts, axis=1))]
    corrected = holm([row.estimate().p for row in rows])
    changes = [row.change(float(p)) for row, p in zip(rows, corrected, strict=True)]
    return Drift(changes, _shares(coverage), sorted(columns[0] - columns[1]), sorted(columns[1] - columns[0]))


def _compared(matched: Matched) -> Iterator[Compared]:
    for rows in (_features, _context, _clicks, _order, _bias):
        yield from rows(matched)


def _refuse_nothing_shared(coverage: dict[str, float], examples: list[list[object]]) -> None:
    if not coverage["queries_shared"]:
        first, second = (", ".join(repr(entry) for entry in each[:2]) + ", …" for each in examples)
        raise ValueError(
            f"the logs share no query (the first has {first}, the second {second}), so a change cannot be separated "
            "from a different mix of queries: compare logs of the same site, with the same ids"
        )
    if not coverage["documents_shared"]:
        raise ValueError(
            f"the logs share {coverage['queries_shared']:,.0f} queries but no document: check the document ids"
        )


def _features(matched: Matched) -> Iterator[Compared]:
    """For documents that both logs show: the mean of each column, its share of missing values, changed categories."""
    a, b = matched.a, matched.b
    names = [name for name in a.log.named_features if name in b.log.named_features]
    n_documents = len(matched.query_of_document)
    weights_a, weights_b = _version_weights(a), _version_weights(b)
    for name in names:
        texts = [side.log.categories.get(name) for side in (a, b)]
        values = [side.log.features[:, side.log.named_features.index(name)].astype(np.float64) for side in (a, b)]
        if (texts[0] is None) != (texts[1] is None):
            raise ValueError(
                f"feature '{name}' is text in one log and numbers in the other: ingest both in the same way"
            )
        known = [~np.isnan(column) for column in values]
        missing = [
            _document_mean((~present).astype(np.float64), weight, side, n_documents)
            for present, weight, side in zip(known, (weights_a, weights_b), (a, b), strict=True)
        ]
        yield _paired("missing", name, missing[0], missing[1], matched)
        if texts[0] is not None and texts[1] is not None:
            values[1] = _recoded(values[1], texts[1], texts[0])
        means = [
            _document_mean(np.where(present, column, 0.0), weight * present, side, n_documents)
            for column, present, weight, side in zip(values, known, (weights_a, weights_b), (a, b), strict=True)
        ]
        if texts[0] is None:
            yield _paired("feature", name, means[0], means[1], matched)
        else:
            moved = np.where(np.isfinite(means[0] + means[1]), (means[0] != means[1]).astype(np.float64), np.nan)
            yield _paired("category", name, np.zeros_like(moved), moved, matched)


def _version_weights(side: Side) -> NDArray[np.float64]:
    log = side.log
    rows = np.nonzero(log.mask)[0]
    return totals(log.versions[log.mask], log.sessions[rows], len(log.features))


def _document_mean(
    values: NDArray[np.float64], weights: NDArray[np.float64], side: Side, n_documents: int
) -> NDArray[np.float64]:
    """Mean of each document over its showings, by common number; NaN if it was not shown."""
    owner = side.documents[side.log.version_documents]
    sums = totals(owner, values * weights, n_documents)
    shown = totals(owner, weights, n_documents)
    return np.divide(sums, shown, out=np.full(n_documents, np.nan), where=shown > 0)


def _paired(
    kind: str, name: str, before: NDArray[np.float64], after: NDArray[np.float64], matched: Matched
) -> Compared:
    """Means over the documents with values in both logs, and their difference."""
    both = np.isfinite(before) & np.isfinite(after)
    owner = matched.query_of_document[both]
    sums = totals(owner, after[both] - before[both], matched.n_queries)
    counts = np.bincount(owner, minlength=matched.n_queries).astype(np.float64)
    old, new = (float(values[both].sum()) for values in (before, after))
    return Compared(kind, name, of_ratio(sums, counts), (old, float(both.sum())), (new, float(both.sum())))


def _recoded(codes: NDArray, have: tuple[str, ...], want: tuple[str, ...]) -> NDArray:
    """Codes in the other vocabulary; values that it lacks get new codes after it."""
    new = [text for text in have if text not in want]
    places = {text: number for number, text in enumerate((*want, *new))}
    table = np.array([places[text] for text in have] or [0], dtype=np.float64)
    missing = np.isnan(codes)
    return np.where(missing, np.nan, table[np.where(missing, 0, codes).astype(np.int64)])


def _context(matched: Matched) -> Iterator[Compared]:
    """The mean of a context column, or the share of each value of a category, and the share of missing values."""
    sides = (matched.a, matched.b)
    for name in [name for name in matched.a.log.context_names if name in matched.b.log.context_names]:
        texts = [side.log.categories.get(name) for side in sides]
        if (texts[0] is None) != (texts[1] is None):
            raise ValueError(
                f"context '{name}' is text in one log and numbers in the other: ingest both in the same way"
            )
        values = [side.log.context[:, side.log.context_names.index(name)].astype(np.float64) for side in sides]
        missing = [np.isnan(column) for column in values]
        yield _of_lists("missing", name, matched, [gone.astype(np.float64) for gone in missing])
        known = [~gone for gone in missing]
        if texts[0] is None or texts[1] is None:
            yield _of_lists("context", name, matched, [np.nan_to_num(column) for column in values], known)
            continue
        for value in dict.fromkeys((*texts[0], *texts[1])):
            codes = [text.index(value) if value in text else -1 for text in (texts[0], texts[1])]
            chosen = [(column == code).astype(np.float64) for column, code in zip(values, codes, strict=True)]
            yield _of_lists("context", f"{name}={value}", matched, chosen, known)


def _of_lists(
    kind: str,
    name: str,
    matched: Matched,
    values: Sequence[NDArray[np.float64]],
    known: Sequence[NDArray[np.bool_]] | None = None,
) -> Compared:
    """Means over sessions of one number per list `[lists]`, or over impressions of one per place `[lists, docs]`."""
    numbers: list[NDArray[np.float64]] = []
    for place, (side, column) in enumerate(zip((matched.a, matched.b), values, strict=True)):
        counted = (side.log.mask if column.ndim > 1 else np.ones(len(column), bool)) if known is None else known[place]
        sessions = side.log.sessions.reshape(-1, *[1] * (column.ndim - 1)) * counted
        per_list = [each.reshape(len(each), -1).sum(axis=1) for each in (column * sessions, sessions)]
        numbers += [totals(side.queries, each, matched.n_queries) for each in per_list]
    return Compared(kind, name, of_difference(*numbers))


def _clicks(matched: Matched) -> Iterator[Compared]:
    """Clicks per impression of the same documents at the same position, position by position."""
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
        sums, weights = (
            totals(query[here], values[here] * weight[here], matched.n_queries)
            for values in (rate_b - rate_a, np.ones(len(cells)))
        )
        total = float(weight[here].sum())
        before, after = (float((rate[here] * weight[here]).sum()) for rate in (rate_a, rate_b))
        name = f"position {place + 1}"
        yield Compared("clicks", name, of_ratio(sums, weights), (before, total), (after, total))


def _order(matched: Matched) -> Iterator[Compared]:
    """The mean squared shift of positions among documents that both logs show, minus its expectation by chance."""
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
    owner = matched.query_of_document[known]
    sums = totals(owner, shift[known], matched.n_queries)
    counts = np.bincount(owner, minlength=matched.n_queries).astype(np.float64)
    yield Compared("order", "squared shift of places of the same documents", of_ratio(sums, counts))


def _traffic(counts: NDArray[np.float64]) -> Compared:
    """The squared change of query shares, from sessions `[2, queries]`, minus its expectation by chance."""
    shares = [count / count.sum() for count in counts]
    chance = sum(share * (1 - share) / (count.sum() - 1 or np.nan) for share, count in zip(shares, counts, strict=True))
    moved = ((shares[0] - shares[1]) ** 2 - chance) * len(counts[0]) ** 2
    return Compared("traffic", "squared relative change of the shares of queries", of_ratio(moved, np.ones(len(moved))))


def _bias(matched: Matched) -> Iterator[Compared]:
    """The share of each level of a bias column, over lists or impressions, or the mean of a numeric column."""
    a, b = matched.a.log.bias, matched.b.log.bias
    for name in [name for name in a if name in b]:
        columns: tuple[BiasColumn, BiasColumn] = (a[name], b[name])
        if columns[0].levels is None or columns[1].levels is None:
            yield _of_lists("bias", name, matched, [column.values.astype(np.float64) for column in columns])
            continue
        for level in dict.fromkeys((*columns[0].levels, *columns[1].levels)):
            chosen = [
                (np.array([entry == level for entry in column.levels or ()])[column.values]).astype(np.float64)
                for column in columns
            ]
            yield _of_lists("bias", f"{name}={level}", matched, chosen)


def _coverage(matched: Matched) -> dict[str, float]:
    """The overlap of the logs."""
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
        "sessions_b_of_known_queries": float(b.sessions[queries].sum()),
        "showings_b": float(b.shown.sum()),
        "showings_b_of_known_documents": float(b.shown[documents].sum()),
    }


def _shares(coverage: dict[str, float]) -> dict[str, float]:
    """Coverage, with the known parts of the second log as shares."""
    sessions = coverage["sessions_b_of_known_queries"] / coverage["sessions_b"]
    showings = coverage["showings_b_of_known_documents"] / coverage["showings_b"]
    shares = {"sessions_b_of_known_queries": sessions, "showings_b_of_known_documents": showings}
    return {name: value for name, value in coverage.items() if name != "showings_b"} | shares
