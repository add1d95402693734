"""Click-through by position: clicks per impression, with an interval over queries.

It combines the relevance of the documents at a position with its examination, so it is not an examination curve.
Queries are resampled with all their sessions, so the interval is wider than for independent clicks.

A log of single documents: impressions and clicks of each document at each position, and nothing else.

Most parts of a diagnosis need no more than that. A log of ten million impressions has far fewer pairs of document and
position, so it is summed once and then used many times.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import compact_counts
from unskew.propensities.position_pairs import counted_impressions

Vector = NDArray[np.float64]
MOST_CODES = 200_000_000  # documents x positions counted without sorting


@dataclass(frozen=True, eq=False)
class ClickRates:
    """Clicks per impression at each position that occurs."""

    positions: NDArray[np.int64]  # [positions], ascending
    impressions: Vector
    clicks: Vector
    low: Vector
    high: Vector
    level: float

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


def click_rates(log: ClickLog, *, level: float = 0.95) -> ClickRates:
    """Clicks per impression at each position, or mean feedback if it is graded.

    The interval is normal, with the variance of a ratio of sums over queries:
    $\\mathrm{Var} = \\sum_q (c_{qk} - \\hat r_k n_{qk})^2 / n_k^2$.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
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
    half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt((of_query**2).sum(axis=0)) / impressions
    if np.count_nonzero(np.abs(of_query).sum(axis=1)) < 2:
        half = np.full(len(positions), np.nan)  # one query has no variance between queries
    rates = clicks / impressions
    return ClickRates(positions, impressions, clicks, np.maximum(rates - half, 0.0), rates + half, level)


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
