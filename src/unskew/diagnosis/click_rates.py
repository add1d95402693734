"""Clicks and impressions by position, and by document and position.

**Click rates** combine the relevance of the documents at a position with its examination, so they are no examination
curve. Queries are resampled with all their sessions, so the interval is wider than for independent clicks.

**Single documents**: most parts of a diagnosis need only impressions and clicks of each document at each position. A
log of ten million impressions has far fewer such pairs, so it is summed once and then used many times.

**Causes**: a document was shown at several positions by randomization, a change of ranker, or changed features. The
first two move it without changing it, so that its clicks show the effect of the positions. A changed price that moved
it also changed its relevance: such pairs are counted, but compared only on request (`across_versions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.build import compact_counts
from unskew.data.clicks.click_log import ClickLog
from unskew.propensities.curve import Curve
from unskew.propensities.position_pairs import Index, counted_impressions, pairs_of_documents
from unskew.reporting.answers import BAD, GOOD, UNKNOWN, Finding

Vector = NDArray[np.float64]
DOCUMENTS_AT_ONCE = 100_000
ACROSS = "with changed features"  # a question
LEVEL = 0.95  # of intervals
MOST_CODES = 200_000_000  # documents x positions counted without sorting


@dataclass(frozen=True, eq=False)
class ClickRates:
    """Clicks per impression at each position that occurs."""

    positions: NDArray[np.int64]  # [positions], ascending
    impressions: Vector
    clicks: Vector
    low: Vector
    high: Vector
    level: float = LEVEL

    @property
    def rates(self) -> Vector:
        return self.clicks / self.impressions

    def rows(self) -> list[dict[str, Any]]:
        """One row per position, for tables and files."""
        columns = {
            "position": self.positions,
            "impressions": self.impressions,
            "clicks": self.clicks,
            "rate": self.rates,
            "low": self.low,
            "high": self.high,
        }
        return [
            dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)
        ]


def click_rates(log: ClickLog) -> ClickRates:
    """Clicks per impression at each position, or mean feedback if it is graded.

    The interval is normal, with the variance of a ratio of sums over queries:
    $\\mathrm{Var} = \\sum_q (c_{qk} - \\hat r_k n_{qk})^2 / n_k^2$.
    """
    chosen = counted_impressions(log, None)
    positions, places = np.unique(log.positions[chosen].astype(np.int64), return_inverse=True)
    shown = np.broadcast_to(log.sessions[:, None], log.mask.shape)[chosen].astype(np.float64)
    clicks_of = log.clicks[chosen].astype(np.float64)
    impressions = np.asarray(np.bincount(places, weights=shown), dtype=np.float64)
    clicks = np.asarray(np.bincount(places, weights=clicks_of), dtype=np.float64)
    surplus = clicks_of - (clicks / impressions)[places] * shown
    queries = np.broadcast_to(log.queries[:, None], log.mask.shape)[chosen]
    of_query = np.bincount(queries * len(positions) + places, weights=surplus)
    of_query = np.pad(of_query, (0, -len(of_query) % len(positions))).reshape(-1, len(positions))
    half = NormalDist().inv_cdf((1 + LEVEL) / 2) * np.sqrt((of_query**2).sum(axis=0)) / impressions
    if np.count_nonzero(np.abs(of_query).sum(axis=1)) < 2:
        half = np.full(len(positions), np.nan)  # one query has no variance between queries
    rates = clicks / impressions
    return ClickRates(positions, impressions, clicks, np.maximum(rates - half, 0.0), rates + half)


def single_documents(log: ClickLog) -> ClickLog:
    """The same clicks and impressions with one list per document and position, summed over bias columns."""
    chosen = counted_impressions(log, None)
    n_positions = log.n_positions
    code = log.versions[chosen].astype(np.int64) * n_positions + log.positions[chosen]
    sessions = np.broadcast_to(log.sessions[:, None], chosen.shape)[chosen]
    cells, shown, clicks = _added_up(code, sessions, log.clicks[chosen], len(log.features) * n_positions)
    documents, positions = np.divmod(cells, n_positions)
    return ClickLog(
        features=log.features,
        versions=documents[:, None].astype(np.int32),
        mask=np.ones((len(cells), 1), dtype=bool),
        clicks=compact_counts(clicks)[:, None],
        sessions=compact_counts(shown),
        positions=positions[:, None].astype(np.int16),
        version_documents=log.version_documents,
        document_queries=log.document_queries,
        query_ids=log.query_ids,
        document_ids=log.document_ids,
        feature_names=log.feature_names,
        categories={name: names for name, names in log.categories.items() if name in log.feature_names},
        graded=log.graded,
    )


def _added_up(
    code: NDArray[np.int64], shown: NDArray, clicks: NDArray, n_codes: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """The codes that occur, and the sums of both values for each."""
    if n_codes > MOST_CODES:
        cells, number = np.unique(code, return_inverse=True)
        sums = [np.bincount(number, weights=values).astype(np.float64) for values in (shown, clicks)]
        return cells, sums[0], sums[1]
    sums = [np.bincount(code, weights=values, minlength=n_codes).astype(np.float64) for values in (shown, clicks)]
    cells = np.flatnonzero(sums[0] > 0)
    return cells, sums[0][cells], sums[1][cells]


@dataclass(frozen=True)
class PairCauses:
    """Pairs of positions of documents, each counted under the best of its causes."""

    ranker: int  # the same version at both positions, in lists that no intervention changed
    randomization: int  # the same version at both, at one of them only in lists that an intervention changed
    features: int  # no version at both, but two versions of the document

    def findings(self, curve: Curve | None, across_versions: Curve | None) -> Iterator[Finding]:
        """The causes, and how the curve differs if changed features are used (`across_versions`)."""
        counts = f"{self.randomization:,} by randomization, {self.ranker:,} by a ranker change"
        if self.features:
            counts += f"; {self.features:,} by changed features, which are not used"
        if self.features + self.randomization + self.ranker:
            yield Finding("position pairs by cause", counts)
        if not self.features or across_versions is None:
            return
        if curve is None:
            text = "they would link all positions, but a changed feature (a price) also changes relevance"
            yield Finding(ACROSS, f"{text}; to use them anyway: across_versions=True", UNKNOWN)
            return
        _, here, there = np.intersect1d(curve.positions, across_versions.positions, return_indices=True)
        apart = (across_versions.low[there] > curve.high[here]) | (across_versions.high[there] < curve.low[here])
        if not apart.any():
            yield Finding(ACROSS, "they give the same curve within its interval", GOOD)
            return
        at = int(np.flatnonzero(apart)[-1])
        text = f"they give another curve: {across_versions.spelled(int(there[at]))} at position "
        text += f"{curve.positions[here[at]] + 1}, but {curve.spelled(int(here[at]))} within versions"
        yield Finding(ACROSS, f"{text}; the changed features also changed relevance", BAD)


def pair_causes(log: ClickLog) -> PairCauses:
    """Count pairs of positions at which documents of a query were shown, by cause.

    >>> log = ClickLog.from_arrays([[1.0], [2.0]], clicks=[1, 0], group=[2])
    >>> pair_causes(log)
    PairCauses(ranker=0, randomization=0, features=0)
    """
    chosen = counted_impressions(log, None)
    n_positions = log.n_positions
    plain = np.ones(log.n_lists, bool) if log.interventions is None else log.interventions.values == 0
    code = log.versions[chosen].astype(np.int64) * n_positions + log.positions[chosen]
    unchanged = np.broadcast_to(plain[:, None], chosen.shape)[chosen]
    cells = np.unique(code)
    of_plain = np.isin(cells, np.unique(code[unchanged]), assume_unique=True)
    versions, places = np.divmod(cells, n_positions)
    documents = log.version_documents[versions]
    order = np.lexsort((places, versions, documents))
    versions, places, documents = versions[order], places[order], documents[order]
    of_plain = of_plain[order]
    counts = np.zeros(3, dtype=np.int64)
    starts = np.searchsorted(documents, np.arange(0, log.n_documents, DOCUMENTS_AT_ONCE))
    for first, last in zip(starts, [*starts[1:], len(documents)], strict=True):
        part = slice(first, last)
        own, at, kept = documents[part], places[part], of_plain[part]
        by_ranker = _pairs(versions[part][kept], own[kept], at[kept], n_positions)
        of_version = _pairs(versions[part], own, at, n_positions)
        across = np.unique(own * n_positions + at)
        of_document = _pairs(across // n_positions, across // n_positions, across % n_positions, n_positions)
        sizes = (len(by_ranker), len(of_version), len(of_document))
        counts += (sizes[0], sizes[1] - sizes[0], sizes[2] - sizes[1])
    return PairCauses(*counts.tolist())


def _pairs(numbers: Index, documents: Index, places: NDArray, n_positions: int) -> Index:
    """Distinct pairs of positions of each document, among rows of the same number, as codes."""
    one, other = pairs_of_documents(numbers)
    return np.unique((documents[one] * n_positions + places[one]) * n_positions + places[other])


def row_keys(columns: Iterable[NDArray]) -> NDArray[np.uint64]:
    """A number for each row of whole numbers, given by columns; equal rows have equal numbers."""
    keys: NDArray[np.uint64] = np.zeros((), np.uint64)
    for column in columns:
        keys = (keys ^ (keys >> np.uint64(29)) ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(keys)
